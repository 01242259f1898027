"""A database of one test, seen by a plain client: the oracle, which uses nothing of exactum's
SQL layer.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.constants import ER

from exactum.local.mariadb import LocalMariaDB

_numbers = itertools.count(1)


class Database:
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
            database.roll_back_all()
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
        self, sql: str, arguments: tuple[Any, ...] | None = None, database: str | None = None
    ) -> list[Any]:
        """One statement by the plain client; its rows."""
        if self._client is None:
            self._client = self.client(database)
        with self._client.cursor() as cursor:
            cursor.execute(sql, arguments)
            return list(cursor.fetchall())

    def disconnect(self) -> None:
        """Forget the plain connection, as after a restart of the server."""
        if self._client is not None and self._client.open:
            self._client.close()
        self._client = None

    def values(self, table: str, column: str = "v") -> list[Any]:
        return sorted(row[0] for row in self.run(f"SELECT `{column}` FROM `{table}`"))

    # ---- what is left over -------------------------------------------------------------------

    def tables(self, prefix: str) -> list[str]:
        rows = self.run(
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s", (self.name,)
        )
        return [name for (name,) in rows if name.startswith(prefix)]

    def staged(self) -> int:
        """Rows in all staging tables and in the directory."""
        count = sum(
            self.run(f"SELECT COUNT(*) FROM `{t}`")[0][0] for t in self.tables("exactum_stage_")
        )
        return int(count) + int(self.run("SELECT COUNT(*) FROM exactum_prepared")[0][0])

    def xids(self) -> list[str]:
        """Prepared transactions on the whole server, as XA COMMIT takes them."""
        return [str(row[3]) for row in self.run("XA RECOVER FORMAT='SQL'")]

    def roll_back_all(self) -> None:
        """Nobody else may end one before the server has noticed that the connection of its task
        is gone.
        """
        deadline = time.monotonic() + 30
        while xids := self.xids():
            for xid in xids:
                try:
                    self.run(f"XA ROLLBACK {xid}")
                except pymysql.err.Error as error:
                    if error.args[0] != ER.XAER_NOTA or time.monotonic() > deadline:
                        raise
            time.sleep(0.01)
