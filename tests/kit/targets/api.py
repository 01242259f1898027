"""A target without transactions: an HTTP server that keeps every row it is sent, and can be
down.
"""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Api:
    """``rows`` in the order in which they came, ``keys`` likewise; a key that comes twice is not
    looked at.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.lock = threading.Lock()
        self._address = ("127.0.0.1", 0)
        self.start()

    @property
    def url(self) -> str:
        return f"http://{self._address[0]}:{self._address[1]}/rows"

    def take(self, key: str, rows: list[dict[str, Any]]) -> int:
        """The status to answer with, 0 for no answer. Called under ``lock``; another target
        answers otherwise.
        """
        self.rows += rows
        self.keys.append(key)
        return 200

    def start(self) -> None:
        """On the same port as before."""
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                if len(body) < length:
                    return  # the client was killed half-way
                with api.lock:
                    status = api.take(self.headers["Idempotency-Key"], json.loads(body))
                if status:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # the client was killed
                    super().handle()

            def log_message(self, *args: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(self._address, Handler)
        self._address = ("127.0.0.1", self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def stop(self) -> None:
        """Nobody listens any more; what has come is kept."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
