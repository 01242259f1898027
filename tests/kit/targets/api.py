"""A target without transactions: an HTTP server that keeps every row it is sent, and can be
down. And the sink that sends them.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from contextlib import ExitStack
from typing import Any

from exactum import WriteAheadSink
from tests.kit.serving import Answer, Asked, HttpServer, serving
from tests.kit.waiting import WAIT_MAX_S


class ApiSink(WriteAheadSink):
    """The documented use: one POST for each chunk, with the key as the idempotency key."""

    def __init__(self, url: str, **settings: Any) -> None:
        super().__init__(name="api", **settings)
        self.url = url

    def send(self, batch: Any, key: str) -> None:
        body = json.dumps(batch.to_pylist()).encode()
        request = urllib.request.Request(self.url, body, {"Idempotency-Key": key})
        with urllib.request.urlopen(request, timeout=WAIT_MAX_S) as reply:
            reply.read()


class Api:
    """``rows`` in the order in which they came, ``keys`` likewise; a key that comes twice is not
    looked at.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.lock = threading.Lock()
        self._port = 0
        self._serving = ExitStack()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/rows"

    def take(self, key: str, rows: list[dict[str, Any]]) -> int:
        """The status to answer with, 0 for no answer. Called under ``lock``; another target
        answers otherwise.
        """
        self.rows += rows
        self.keys.append(key)
        return 200

    def start(self) -> None:
        """On the same port as before."""
        self._server = HttpServer(self._answer, self._port)
        self._port = self._server.server_port
        self._serving.enter_context(serving(self._server))

    def _answer(self, asked: Asked) -> Answer | None:
        with self.lock:
            status = self.take(asked.headers["Idempotency-Key"], json.loads(asked.body))
        return (status, {}, b"") if status else None

    def stop(self) -> None:
        """Nobody listens any more; what has come is kept."""
        self._serving.close()
