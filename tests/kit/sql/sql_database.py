"""What the tests of both dialects ask of a database, by a plain client: the oracle, which uses
nothing of exactum's SQL layer.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pytest

from exactum.sql.dialect import Dialect
from exactum.sql.files import SqlFiles
from exactum.sql.sink import SqlSink
from exactum.sql.url import Address
from tests.kit.sql.sql_epochs import ID_AND_NAME, Columns, Query

_numbers = itertools.count(1)


class SqlDatabase(ABC):
    """A server's database with no table in it at a test's begin."""

    dialect: Dialect
    server: Any
    kind: type[SqlSink]

    @property
    @abstractmethod
    def url(self) -> str: ...

    @property
    @abstractmethod
    def address(self) -> Address: ...

    @abstractmethod
    def run(self, sql: str, arguments: Sequence[object] | None = None) -> list[Any]:
        """One statement by the plain client, which connects again after the server was restarted;
        its rows.
        """

    @abstractmethod
    def drop_all(self) -> None:
        """Every table and view of a user."""

    @abstractmethod
    def end_sessions(self) -> None:
        """An administrator ends every session of exactum."""

    @abstractmethod
    def end_idle_soon(self, patch: pytest.MonkeyPatch) -> None:
        """The server ends a stopped driver's transaction after some seconds."""

    def rows(self, sql: str, arguments: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        return self.run(sql, arguments)

    def value(self, sql: str, arguments: Sequence[object] | None = None) -> Any:
        return self.run(sql, arguments)[0][0]

    def values(self, table: str, column: str = "v") -> list[Any]:
        return sorted(value for (value,) in self.run(f"SELECT {column} FROM {table}"))

    def table(self, columns: str = "id bigint, name text") -> str:
        """A new empty table with a name of its own."""
        name = f"target_{next(_numbers)}"
        self.run(f"CREATE TABLE {name} ({columns})")
        return name

    def sink(self, table: str, url: str = "", **settings: Any) -> SqlSink:
        return self.kind(url or self.url, table=table, **settings)

    def query(self, table: str, columns: Columns = ID_AND_NAME, **settings: Any) -> Query:
        return Query(lambda: self.sink(table, **settings), columns)

    def files(self, query_id: str, **settings: Any) -> SqlFiles:
        return SqlFiles(self.dialect, self.address, query_id, **settings)
