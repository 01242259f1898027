"""One broker and one PostgreSQL for all test processes of a run.

The process that deals out the tests starts each of them when a test process asks for it first, and
stops them when all have ended. They die with it, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, NoReturn

import psycopg

from exactum.errors import LocalServerError
from exactum.java.program import SMALL_OPTIONS
from exactum.local import LocalKafka
from exactum.local.broker import Ports
from exactum.local.own_process import OwnProcess
from tests.kit.memory import memory_folder
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql.postgres_server import hash_quickly

Address = tuple[str, bytes]
"""The socket of the process that has the servers, and the key to it."""
HEAP_MB = 1024
"""All topics of a run are kept to its end: thousands of partitions."""


@contextlib.contextmanager
def started_kafka() -> Iterator[LocalKafka]:
    properties = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
        # It has little to do for most of a run: each heartbeat is work on both sides.
        "broker.heartbeat.interval.ms": 1500,
        "broker.session.timeout.ms": 4500,
        # Tests give records times of years ago, which a broker deletes every five minutes.
        "log.retention.ms": -1,
    }
    with LocalKafka(properties=properties, heap_mb=HEAP_MB, jvm_options=SMALL_OPTIONS) as cluster:
        yield cluster


@contextlib.contextmanager
def started_postgres() -> Iterator[LocalPostgres]:
    settings = {"max_connections": 300}
    with memory_folder() as folder, LocalPostgres(data_dir=folder, settings=settings) as server:
        hash_quickly(server)
        yield server


@dataclass(frozen=True)
class PostgresPlace:
    """What a test process has to know of the server."""

    port: int
    password: str
    folder: Path
    database: str


class RunServers:
    """The servers of a run, in the process that outlives the others. ``address`` is for these."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)
        self._listener = Listener(family="AF_UNIX", authkey=self._key)
        self._stack = contextlib.ExitStack()
        self._kafka = _Once(lambda: self._stack.enter_context(started_kafka()))
        self._postgres = _Once(lambda: self._stack.enter_context(started_postgres()))
        self._creating = threading.Lock()
        self._answering: list[threading.Thread] = []
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    @property
    def address(self) -> Address:
        return str(self._listener.address), self._key

    def close(self) -> None:
        """Stop what was started. No test process may ask any more."""
        with Client(self.address[0], authkey=self._key) as connection:
            connection.send(None)
        self._listening.join()
        for thread in self._answering:
            thread.join()
        self._listener.close()
        self._stack.close()

    def _listen(self) -> None:
        while True:
            connection = self._listener.accept()
            question = connection.recv()
            if question is None:
                connection.close()
                return
            thread = threading.Thread(target=self._answer, args=(connection, *question))
            self._answering.append(thread)
            thread.start()

    def _answer(self, connection: Connection, kind: str, process: str) -> None:
        with connection:
            try:
                answer: object = self._ports() if kind == "kafka" else self._place(process)
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
            with contextlib.suppress(BrokenPipeError):  # who asked was interrupted
                connection.send(answer)

    def _ports(self) -> Ports:
        ports: Ports = self._kafka.get()._ports
        return ports

    def _place(self, process: str) -> PostgresPlace:
        server = self._postgres.get()
        name = f"exactum_{process}"
        with self._creating, psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return PostgresPlace(server.port, server.password, server.folder, name)


class _Once:
    """Starts a server when it is asked for first; whoever else asks meanwhile waits."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._server: Any = None

    def get(self) -> Any:
        with self._lock:
            if self._server is None:
                self._server = self._start()
            return self._server


def asked(address: Address, kind: str) -> Any:
    """What this test process has to know of the run's server of this kind."""
    socket, key = address
    with Client(socket, authkey=key) as connection:
        connection.send((kind, os.environ["PYTEST_XDIST_WORKER"]))
        answer = connection.recv()
    if isinstance(answer, str):
        raise LocalServerError(f"The run's server did not start. {answer}")
    return answer


class SharedKafka(LocalKafka):
    """The run's broker, for one of its test processes."""

    def __init__(self, ports: Ports) -> None:
        super().__init__()
        self._ports = ports

    def is_running(self) -> bool:
        return True

    def start(self) -> None:
        """It runs."""

    def stop(self, timeout_s: float = 0) -> None:
        _everybodys()

    def _made(self) -> OwnProcess:
        _everybodys()


class SharedPostgres(LocalPostgres):
    """The run's PostgreSQL, for one of its test processes, with a database of its own."""

    def __init__(self, place: PostgresPlace) -> None:
        super().__init__(port=place.port)
        self.password, self._folder = place.password, place.folder
        self.database = place.database

    @property
    def running(self) -> bool:
        return True

    @property
    def pid(self) -> int:
        _everybodys()

    def kill(self) -> None:
        _everybodys()

    def restart(self, timeout_s: float = 0) -> None:
        _everybodys()

    def stop(self, timeout_s: float = 0) -> None:
        _everybodys()


def _everybodys() -> NoReturn:
    raise LocalServerError(
        "this server is the whole run's. A test that stops, freezes or kills one starts its own."
    )
