"""A database of one test, seen by a plain client: the oracle, which uses nothing of exactum's
SQL layer.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pymysql
import pytest
from pymysql.constants import CR, ER

from exactum.sql.mysql import session as mysql_session
from exactum.sql.mysql.dialect import MySQLDialect
from exactum.sql.mysql.session import address_of
from exactum.sql.mysql.sink import MySQLSink
from exactum.sql.url import Address
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.sql.sql_database import SqlDatabase

_numbers = itertools.count(1)
_made = pymysql.connections.Connection._create_ssl_ctx  # type: ignore[attr-defined]
_plain = list[Any]()


def _context(connection: Any, settings: Any) -> Any:
    """PyMySQL makes a context of TLS for each connection and reads all authorities of this machine
    for it, 20 ms of CPU, and tests connect thousands of times. Those without settings share one.
    """
    if settings:
        return _made(connection, settings)
    if not _plain:
        _plain.append(_made(connection, {}))
    return _plain[0]


pymysql.connections.Connection._create_ssl_ctx = _context  # type: ignore[attr-defined]


class Database(SqlDatabase):
    dialect = MySQLDialect()
    kind = MySQLSink

    def __init__(self, server: LocalMariaDB, name: str) -> None:
        self.server = server
        self.name = name
        self._client: pymysql.Connection[Any] | None = None

    @staticmethod
    @contextmanager
    def made(server: LocalMariaDB) -> Iterator[Database]:
        database = Database(server, f"test_{os.getpid()}_{next(_numbers)}")
        database.run(f"CREATE DATABASE {database.name}", database="mysql")
        database.disconnect()
        try:
            yield database
        finally:
            database.server.start()
            database.end_sessions()  # DROP DATABASE would wait for a lock that one was left with
            database.run(f"DROP DATABASE {database.name}")
            database.disconnect()

    @property
    def url(self) -> str:
        return self.server.url_of(self.name)

    def client(self, database: str | None = None, **options: Any) -> pymysql.Connection[Any]:
        """A new plain connection, in autocommit."""
        options = {
            "user": self.server.user,
            "password": self.server.password,
            "autocommit": True,
            **options,
        }
        return pymysql.connect(
            host=self.server.host,
            port=self.server.port,
            database=database or self.name,
            charset="utf8mb4",
            **options,
        )

    def run(
        self, sql: str, arguments: Sequence[object] | None = None, database: str | None = None
    ) -> list[Any]:
        if self._client is not None:
            try:
                return self._execute(self._client, sql, arguments)
            except pymysql.err.OperationalError as error:
                if error.args[0] not in (CR.CR_SERVER_LOST, CR.CR_SERVER_GONE_ERROR):
                    raise
                self.disconnect()
        self._client = self.client(database)
        return self._execute(self._client, sql, arguments)

    def _execute(
        self, client: pymysql.Connection[Any], sql: str, arguments: Sequence[object] | None
    ) -> list[Any]:
        with client.cursor() as cursor:
            cursor.execute(sql, arguments)
            return list(cursor.fetchall())

    @property
    def address(self) -> Address:
        return address_of(self.url, None, "decision_log")

    def disconnect(self) -> None:
        """Forget the plain connection, as after a restart of the server."""
        if self._client is not None and self._client.open:
            self._client.close()
        self._client = None

    def drop_all(self) -> None:
        for (name,) in self.run("SHOW TABLES"):
            self.run(f"DROP TABLE `{name}`")

    def end_sessions(self) -> None:
        found = self.run(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = %s AND ID <> CONNECTION_ID()",
            (self.name,),
        )
        for (number,) in found:
            try:
                self.run(f"KILL CONNECTION {number}")
            except pymysql.err.OperationalError as error:
                if error.args[0] != ER.NO_SUCH_THREAD:  # it has ended by itself
                    raise

    def end_idle_soon(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(mysql_session, "IDLE_TRANSACTION_TIMEOUT_S", 2)


@pytest.fixture
def database(mariadb: LocalMariaDB) -> Iterator[Database]:
    """An empty database of this test, and a plain client for it."""
    with Database.made(mariadb) as made:
        yield made
