"""A server that takes what is sent to it by POST, and keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from tests.kit.serving import serving

Posted = list[tuple[str | None, Any]]


@contextmanager
def posted() -> Iterator[tuple[str, Posted]]:
    """Its address, and the key and the JSON of each request so far."""
    received: Posted = []

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.headers["Idempotency-Key"], json.loads(body)))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """The test reads what was received."""

    with serving(HTTPServer(("127.0.0.1", 0), Taker)) as server:
        yield f"http://127.0.0.1:{server.server_port}", received
