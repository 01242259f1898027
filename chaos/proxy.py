"""A TCP proxy in front of one server, whose network can be broken. It knows no protocol.

cut            nothing passes in either direction until ``heal``, then what was sent arrives: as
               when packets are lost
half_open      the server sees the end of every connection, the client hears nothing; new
               connections work
lose_replies   requests arrive, their replies do not
delay          every chunk takes so much longer
reset          every connection ends by RST, now; new ones work
heal           all is well again; a connection that was harmed beyond repair ends by RST
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import threading
import time

HOST = "127.0.0.1"
CHUNK_BYTES = 65_536
CONNECT_TIMEOUT_S = 5.0
LIBC = ctypes.CDLL(None)
UNSPECIFIED = bytes(16)
"""A socket address of no family."""


class Proxy:
    """Listens from the beginning to the end of its life; used from any thread."""

    def __init__(self, target_port: int = 0) -> None:
        self.target_port = target_port
        self._state = threading.Condition()
        self._is_cut = False
        self._loses_replies = False
        self._delay_s = 0.0
        self._links: set[_Link] = set()
        self.harm = 0
        """How many connections and pieces of data the faults have met so far: nought says that
        one had no effect.
        """
        self._listener = socket.create_server((HOST, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name=f"proxy-{self.port}", daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- faults --------------------------------------------------------------------------------

    def cut(self) -> None:
        self._set(is_cut=True)

    def lose_replies(self) -> None:
        self._set(loses_replies=True)

    def delay(self, delay_s: float) -> None:
        self._set(delay_s=delay_s)

    def half_open(self) -> None:
        for link in self._open_links():
            link.deafen()
            self.harm += 1

    def reset(self) -> None:
        for link in self._open_links():
            link.reset()
            self.harm += 1

    def heal(self) -> None:
        """Idempotent."""
        for link in self._open_links():
            if link.harmed:
                link.reset()
        self._set(is_cut=False, loses_replies=False, delay_s=0.0)

    @property
    def connections(self) -> int:
        return len(self._open_links())

    def close(self) -> None:
        """End all connections and listen no more. Idempotent."""
        # A thread that waits in accept() is not woken by close() alone.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()
        self._set(is_cut=False)

    # ---- how it is done ------------------------------------------------------------------------

    def _set(
        self,
        *,
        is_cut: bool | None = None,
        loses_replies: bool | None = None,
        delay_s: float | None = None,
    ) -> None:
        with self._state:
            self._is_cut = self._is_cut if is_cut is None else is_cut
            self._loses_replies = self._loses_replies if loses_replies is None else loses_replies
            self._delay_s = self._delay_s if delay_s is None else delay_s
            self._state.notify_all()

    def _open_links(self) -> list[_Link]:
        with self._state:
            return list(self._links)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._await_open()
        try:
            server = socket.create_connection((HOST, self.target_port), CONNECT_TIMEOUT_S)
        except OSError:  # the server is down: the client meets what it would meet there
            _abort(client)
            client.close()
            return
        server.settimeout(None)
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(client, server)
        with self._state:
            self._links.add(link)
        pumps = [
            threading.Thread(target=self._pump, args=(link, client, server, False), daemon=True),
            threading.Thread(target=self._pump, args=(link, server, client, True), daemon=True),
        ]
        for pump in pumps:
            pump.start()
        for pump in pumps:
            pump.join()
        with self._state:
            self._links.discard(link)
        client.close()
        server.close()

    def _pump(
        self, link: _Link, source: socket.socket, sink: socket.socket, is_reply: bool
    ) -> None:
        """Carry bytes one way until one side ends."""
        with contextlib.suppress(OSError):  # reset by either side, or by us
            while data := source.recv(CHUNK_BYTES):
                delay_s = self._await_open()
                time.sleep(delay_s)
                if is_reply and self._loses_replies:
                    link.harmed = True
                self.harm += bool(delay_s or link.harmed)
                link.forward(sink, data, is_reply)
        self._await_open()
        if not (link.deaf and is_reply):
            link.end()

    def _await_open(self) -> float:
        """Wait while the network is cut; returns the delay."""
        with self._state:
            self.harm += self._is_cut
            self._state.wait_for(lambda: not self._is_cut)
            return self._delay_s


class _Link:
    """One client's connection and the one that was made for it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.harmed = False
        """Bytes were lost: whatever came now would be misunderstood."""
        self.deaf = False
        """The server's side has ended, and the client does not know."""
        self._client = client
        self._server = server

    def deafen(self) -> None:
        self.harmed = self.deaf = True
        _shutdown(self._server)

    def forward(self, sink: socket.socket, data: bytes, is_reply: bool) -> None:
        """Send on what may still arrive."""
        if self.deaf or (is_reply and self.harmed):
            return
        try:
            sink.sendall(data)
        except OSError:
            if not self.deaf:  # deafened in this moment
                raise

    def reset(self) -> None:
        self.deaf = False
        for one in (self._client, self._server):
            _abort(one)

    def end(self) -> None:
        for one in (self._client, self._server):
            _shutdown(one)


def _shutdown(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def _abort(one: socket.socket) -> None:
    """End a connection by RST at once, also under a thread that waits in recv(): what
    connect(AF_UNSPEC) is for.
    """
    with contextlib.suppress(OSError):
        if LIBC.connect(one.fileno(), UNSPECIFIED, len(UNSPECIFIED)):
            _shutdown(one)
