"""A server of a test's own, which answers in a thread."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

ServerT = TypeVar("ServerT", bound=socketserver.BaseServer)
POLL_S = 0.05


@contextmanager
def serving(server: ServerT) -> Iterator[ServerT]:
    """It answers until the block ends; then nobody listens any more."""
    with server:
        name = f"tests-{type(server).__name__}"
        thread = threading.Thread(
            target=server.serve_forever, args=(POLL_S,), name=name, daemon=True
        )
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Answer = tuple[int, Mapping[str, str], bytes]
"""A status, headers, and the content, of which a HEAD is told no more than the length."""


class HttpServer(ThreadingHTTPServer):
    """Answers each request by what ``answer`` gives for it; None: it hangs up. A client that is
    killed is none of its business.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Callable[[Asked], Answer | None], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer = answer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpServer

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        answer = None
        if len(body) == length:
            answer = self.server.answer(Asked(self.command, self.path, self.headers, body))
        if answer is None:
            raise ConnectionAbortedError
        status, headers, content = answer
        self.send_response_only(status)
        # A server that is stopped is to have no clients: no connection is kept.
        own = {"Content-Length": str(len(content))}
        for name, value in {**own, **headers, "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()
