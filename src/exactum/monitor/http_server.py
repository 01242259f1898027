"""A small read-only web server for what a process knows of its queries: metrics, probes, the page.

Python's own server: GET and HEAD only, and a client that is silent for some seconds is cut off.
It runs in threads of its own, and no trouble of it is the queries'.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from exactum.errors import SettingRefused

logger = logging.getLogger("exactum")

REQUEST_TIMEOUT_S = 10.0
PORTS_TRIED_MAX = 16
"""As Spark's UI: where a port is taken, the next one."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class HttpRequest:
    """``path`` is decoded and begins with a slash; ``query`` has the last value of each name."""

    path: str
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HttpResponse:
    """``headers`` go before those that every answer has (``HEADERS``)."""

    body: bytes
    content_type: str = "text/html; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def text(body: str, status: int = 200) -> HttpResponse:
        return HttpResponse(body.encode(), "text/plain; charset=utf-8", status)


HttpHandler = Callable[[HttpRequest], HttpResponse]
"""Runs in a thread of the server, several at once. What it raises is status 500, and in the log."""


class HttpServer:
    """Serves ``routes`` (by path; one that ends in a slash takes all below it) until ``close``."""

    def __init__(
        self,
        routes: Mapping[str, HttpHandler],
        host: str = "127.0.0.1",
        port: int = 0,
        ports_tried: int = 1,
    ) -> None:
        """Port 0 takes a free one.

        ``ports_tried``: so many, from ``port`` on, where that is taken.

        Raises:
            SettingRefused: none of them can be listened on; the message says why.
        """
        self._routes = dict(routes)
        self._hosts = frozenset((*LOOPBACK, host)) if host in LOOPBACK else None
        self._server = _listening(self, host, port, ports_tried)
        self.host, self.port = host, int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="exactum-http", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def close(self) -> None:
        """Stop listening. Idempotent. A request at hand may still get its answer."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, host: str, target: str) -> HttpResponse:
        """The answer to a GET of ``target`` with this ``Host`` header."""
        if self._hosts is not None and _without_port(host) not in self._hosts:
            # A page of somebody else's, whose name was made to point here (DNS rebinding).
            return HttpResponse.text(f"Not served under this name. Use {self.url}.\n", 403)
        parts = urlsplit(target)
        path = unquote(parts.path)
        request = HttpRequest(path, dict(parse_qsl(parts.query)))
        handler = self._handler(path)
        if handler is None:
            return HttpResponse.text(f"There is no {path!r} here.\n", 404)
        try:
            return handler(request)
        except Exception:  # the page's trouble, and not the query's
            logger.exception("%s could not be served", path)
            return HttpResponse.text("This could not be made. The log says why.\n", 500)

    def _handler(self, path: str) -> HttpHandler | None:
        if path in self._routes:
            return self._routes[path]
        below = [p for p in self._routes if p.endswith("/") and p != "/" and path.startswith(p)]
        return self._routes[max(below, key=len)] if below else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, owner: HttpServer, address: tuple[str, int]) -> None:
        self.owner = owner
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def handle_error(self, *_: Any) -> None:
        logger.debug("a browser went away", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_TIMEOUT_S
    server_version = "exactum"
    sys_version = ""

    def do_GET(self) -> None:
        self._send(with_body=True)

    def do_HEAD(self) -> None:
        self._send(with_body=False)

    def _send(self, *, with_body: bool) -> None:
        response = self.server.owner.answer(self.headers.get("Host", ""), self.path)
        self.send_response(response.status)
        for name, value in {**HEADERS, **response.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if with_body:
            with contextlib.suppress(ConnectionError):
                self.wfile.write(response.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        logger.debug("http: " + format, *args)


def _listening(owner: HttpServer, host: str, port: int, ports_tried: int) -> _Server:
    trouble: OSError | None = None
    for candidate in range(port, port + max(1, ports_tried)):
        try:
            return _Server(owner, (host, candidate))
        except (OSError, OverflowError) as error:
            trouble = error if isinstance(error, OSError) else OSError(str(error))
    raise SettingRefused(
        "PORT_TAKEN",
        f"Nothing can be served at {host}, port {port}: {trouble}. Give another port, or 0 for a "
        "free one.",
    ) from trouble


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
