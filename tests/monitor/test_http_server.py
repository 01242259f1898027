"""The small web server: what it answers, whom it refuses, and that its bounds hold."""

from __future__ import annotations

import http.client
import logging
import socket
from collections.abc import Iterator

import pytest

from exactum.errors import SettingRefused
from exactum.monitor import http_server
from exactum.monitor.http_server import (
    HEADERS,
    HttpRequest,
    HttpResponse,
    HttpServer,
)
from tests.kit.errors import raised
from tests.kit.waiting import WAIT_MAX_S, await_true


def shown(request: HttpRequest) -> HttpResponse:
    return HttpResponse.text(f"{request.path} {sorted(request.query.items())}")


def large(request: HttpRequest) -> HttpResponse:
    return HttpResponse.text("x" * 10_000_000)


def broken(request: HttpRequest) -> HttpResponse:
    raise ZeroDivisionError("s3cret")


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    pages = dict.fromkeys(("/", "/exact", "/below/", "/below/deep/"), shown)
    serving = HttpServer({**pages, "/broken": broken, "/large": large})
    yield serving
    serving.close()
    serving.close()  # idempotent


@pytest.fixture
def impatient(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> HttpServer:
    """It waits a second for a client, who may be late where a machine is busy."""
    monkeypatch.setattr(http_server._Handler, "timeout", 1.0)
    return server


def ask(
    server: HttpServer, path: str, method: str = "GET", host: str | None = None
) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=WAIT_MAX_S)
    try:
        connection.request(method, path, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def served(server: HttpServer) -> bool:
    """False where there was no room in time."""
    try:
        return ask(server, "/exact")[0] == 200
    except (http.client.HTTPException, OSError):
        return False


def test_routes(server: HttpServer) -> None:
    """An exact path, or the longest one that ends in a slash and takes all below it; the path is
    decoded, and of a name in the query the last value counts.
    """
    assert ask(server, "/exact?a=1&a=2&b=%20")[:2] == (200, "/exact [('a', '2'), ('b', ' ')]")
    assert ask(server, "/below/a%20b")[1] == "/below/a b []"
    assert ask(server, "/below/deep/x")[0] == 200
    assert ask(server, "/")[0] == 200
    status, text, _ = ask(server, "/exact/more")
    assert (status, "/exact" in text) == (404, True)


@pytest.mark.parametrize("path", ["/", "/nowhere", "/broken", "/large"])
def test_every_answer_is_kept_from_other_pages(server: HttpServer, path: str) -> None:
    """The content security policy and the like, also of errors."""
    headers = ask(server, path)[2]
    assert {name: headers[name] for name in HEADERS} == HEADERS
    policy = headers["Content-Security-Policy"]
    for part in ("default-src 'none'", "script-src 'self'", "style-src 'self'"):
        assert part in policy and "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Python" not in headers["Server"]


def test_what_a_handler_raises_stays_here(
    server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Status 500, the traceback is in the log and not on the page, and the next request is served."""
    with caplog.at_level(logging.ERROR, "exactum"):
        status, text, _ = ask(server, "/broken")
    assert (status, "s3cret" in text) == (500, False)
    assert "could not be served" in caplog.text
    assert ask(server, "/exact")[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:4141", 200),
        ("localhost:1", 200),
        ("LOCALHOST", 200),
        ("[::1]:80", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("", 403),
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(
    server: HttpServer, host: str, status: int
) -> None:
    """DNS rebinding: somebody's page could read what is served to this machine alone."""
    assert ask(server, "/exact", host=host)[0] == status


def test_a_server_for_all_machines_is_reached_by_any_name() -> None:
    server = HttpServer({"/": shown}, "0.0.0.0")
    try:
        assert server.answer("monitor.example:9", "/").status == 200
    finally:
        server.close()


def test_head_and_other_methods(server: HttpServer) -> None:
    """HEAD says what GET would, without the body. Nothing can be changed: there is no other
    method.
    """
    length = len(ask(server, "/exact")[1])
    status, text, headers = ask(server, "/exact", "HEAD")
    assert (status, text, int(headers["Content-Length"])) == (200, "", length)
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(server, "/exact", method)[0] == 501


@pytest.mark.parametrize("asks", [b"", b"GET /large HTTP/1.0\r\nHost: localhost\r\n\r\n"])
def test_clients_that_do_nothing_hold_nobody_up(impatient: HttpServer, asks: bytes) -> None:
    """Who never asks, or never reads, is cut off after his time."""
    clients = [socket.create_connection((impatient.host, impatient.port)) for _ in range(40)]
    try:
        for client in clients:
            client.sendall(asks)
        await_true(lambda: served(impatient), "there is room again")
        for client in [] if asks else clients:
            client.settimeout(WAIT_MAX_S)
            assert client.recv(1) == b""
    finally:
        for client in clients:
            client.close()


def test_ports(server: HttpServer) -> None:
    """Where a port is taken the next one is tried, as often as was said; then it is refused."""
    with raised(SettingRefused, "PORT_TAKEN", "127.0.0.1", server.port):
        HttpServer({}, port=server.port)
    with pytest.raises(SettingRefused):
        HttpServer({}, port=70_000)
    with pytest.raises(SettingRefused):
        HttpServer({}, "no.such.host.invalid")
    other = HttpServer({"/": shown}, port=server.port, ports_tried=16)
    try:
        assert server.port < other.port <= server.port + 15
        assert ask(other, "/")[0] == 200
    finally:
        other.close()
