"""The proxy breaks networks as it says, and mends them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from chaos.proxy import HOST, Proxy
from tests.kit.waiting import WAIT_MAX_S, await_true

SHORT_S = 0.3


class Echo:
    """A server that answers each piece with the same piece, and tells when a connection ends."""

    def __init__(self) -> None:
        self.observed: list[bytes] = []
        self.ended = threading.Event()
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            while data := client.recv(1000):
                self.observed.append(data)
                client.sendall(data)
        self.ended.set()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.port) as made:
        yield made


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    """A connection that works."""
    with connected(proxy) as made:
        assert asked(made, b"hello") == b"hello"
        yield made


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), WAIT_MAX_S)


def asked(client: socket.socket, data: bytes, timeout_s: float = WAIT_MAX_S) -> bytes | None:
    """The answer; None if there is none in time."""
    client.settimeout(timeout_s)
    client.sendall(data)
    try:
        return client.recv(1000)
    except TimeoutError:
        return None


def test_a_cut_holds_everything_back_until_it_is_healed(
    echo: Echo, proxy: Proxy, client: socket.socket
) -> None:
    proxy.cut()
    assert asked(client, b"held", SHORT_S) is None
    assert echo.observed == [b"hello"]
    with connected(proxy) as late:
        assert asked(late, b"late", SHORT_S) is None
        proxy.heal()
        for each in (client, late):
            each.settimeout(WAIT_MAX_S)
        assert (client.recv(1000), late.recv(1000)) == (b"held", b"late")
    assert proxy.harm > 0


def test_lost_replies_were_requests_that_arrived(
    echo: Echo, proxy: Proxy, client: socket.socket
) -> None:
    proxy.lose_replies()
    assert asked(client, b"done?", SHORT_S) is None
    await_true(lambda: proxy.harm > 0, "the reply has come to the proxy")
    assert echo.observed[-1] == b"done?"
    proxy.heal()
    with pytest.raises(ConnectionResetError):
        asked(client, b"more")


def test_half_open_the_server_knows_and_the_client_does_not(
    echo: Echo, proxy: Proxy, client: socket.socket
) -> None:
    proxy.half_open()
    assert echo.ended.wait(WAIT_MAX_S)
    assert asked(client, b"hello?", SHORT_S) is None
    with connected(proxy) as other:
        assert asked(other, b"new") == b"new"
        proxy.heal()
        assert asked(other, b"still") == b"still"
    with pytest.raises(ConnectionResetError):
        asked(client, b"more")


def test_a_reset_is_one_and_new_connections_work(proxy: Proxy, client: socket.socket) -> None:
    client.settimeout(WAIT_MAX_S)
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1000)
    with connected(proxy) as other:
        assert asked(other, b"new") == b"new"
    await_true(lambda: proxy.connections == 0, "no connection is left")


def test_a_delay_delays(proxy: Proxy, client: socket.socket) -> None:
    proxy.delay(0.2)
    began = time.monotonic()
    assert asked(client, b"slow") == b"slow"
    assert time.monotonic() - began >= 0.4, "there and back"


def test_a_server_that_is_down_looks_so(echo: Echo, proxy: Proxy) -> None:
    echo.close()
    # The reset may come as soon as connecting is done, and is then connect()'s error.
    with pytest.raises(ConnectionResetError), connected(proxy) as client:
        client.recv(1000)
