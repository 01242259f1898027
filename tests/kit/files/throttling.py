"""An HTTP proxy in front of an S3 server that refuses some requests, or all."""

from __future__ import annotations

import http.client
import itertools
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.kit.serving import serving

HOP = frozenset(("connection", "keep-alive", "transfer-encoding", "expect"))


class Throttling(ThreadingHTTPServer):
    """Each ``every``-th request is answered by SlowDown; 0: none. ``refusal``: a status and one of
    S3's codes, answered to everything.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, target_port: int, every: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target_port = target_port
        self.every = every
        self.refusal: tuple[int, str] | None = None
        self.refused = 0
        self.numbers = itertools.count(1)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Throttling

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        number, every = next(self.server.numbers), self.server.every
        refusal = self.server.refusal
        if refusal is None and every and number % every == 0:
            refusal = (503, "SlowDown")
        if refusal is not None:
            self.server.refused += 1
            text = f"<Error><Code>{refusal[1]}</Code><Message>{refusal[1]}</Message></Error>"
            self._answer(refusal[0], {"Content-Type": "application/xml"}, text.encode())
            return
        behind = http.client.HTTPConnection("127.0.0.1", self.server.target_port, timeout=60)
        try:
            behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in HOP:
                    behind.putheader(name, value)
            behind.endheaders(body)
            answer = behind.getresponse()
            content = answer.read()
            headers = {n: v for n, v in answer.getheaders() if n.lower() not in HOP}
            self._answer(answer.status, headers, content)
        finally:
            behind.close()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Not on the terminal."""


def throttling(target_port: int, every: int) -> AbstractContextManager[Throttling]:
    return serving(Throttling(target_port, every))
