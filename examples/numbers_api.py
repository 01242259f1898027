"""An HTTP API for ``write_ahead_sink.py``: it takes numbers, and keeps the keys it has seen.

    python numbers_api.py 8080
    curl localhost:8080

It has no transactions, and it is not reliable: of every fifth request it takes the numbers and
loses the reply. The sender cannot know that, and sends the request again.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOSES_EVERY = 5


class NumbersServer(ThreadingHTTPServer):
    """``numbers`` as they came, the requests that came twice left out."""

    def __init__(self, port: int) -> None:
        self.numbers: list[int] = []
        self.keys: set[str] = set()
        self.requests = 0
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)

    def take(self, key: str, numbers: list[int]) -> bool:
        """Whether the sender gets a reply."""
        with self.lock:
            self.requests += 1
            if key not in self.keys:
                self.keys.add(key)
                self.numbers += numbers
            return self.requests % LOSES_EVERY != 0

    def summary(self) -> dict[str, int]:
        with self.lock:
            return {
                "requests": self.requests,
                "came twice": self.requests - len(self.keys),
                "numbers": len(self.numbers),
                "different": len(set(self.numbers)),
            }


class Handler(BaseHTTPRequestHandler):
    server: NumbersServer

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.take(self.headers["Idempotency-Key"], [row["number"] for row in rows]):
            self.reply({})

    def do_GET(self) -> None:
        self.reply(self.server.summary())

    def reply(self, value: dict[str, int]) -> None:
        body = json.dumps(value).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


if __name__ == "__main__":
    NumbersServer(int(sys.argv[1])).serve_forever()
