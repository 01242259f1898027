"""What the tests of both dialects ask of a database, by a plain client: the oracle, which uses
nothing of exactum's SQL layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pytest

from exactum.sql.dialect import Dialect
from exactum.sql.files import SqlFiles
from exactum.sql.sink import SqlSink
from exactum.sql.url import Address


class SqlServer(Protocol):
    @property
    def password(self) -> str: ...

    def start(self) -> object: ...

    def kill(self) -> None: ...


class SqlDatabase(Protocol):
    """A server's database with no table in it at a test's begin."""

    dialect: Dialect

    @property
    def server(self) -> SqlServer: ...

    @property
    def url(self) -> str: ...

    @property
    def address(self) -> Address: ...

    def run(self, sql: str, arguments: Sequence[object] | None = None) -> object: ...

    def rows(
        self, sql: str, arguments: Sequence[object] | None = None
    ) -> list[tuple[Any, ...]]: ...

    def value(self, sql: str, arguments: Sequence[object] | None = None) -> Any: ...

    def table(self, columns: str = "id bigint, name text") -> str:
        """A new empty table with a name of its own."""

    def drop_all(self) -> None: ...

    def end_sessions(self) -> None:
        """An administrator ends every session of exactum."""

    def end_idle_soon(self, patch: pytest.MonkeyPatch) -> None:
        """The server ends a stopped driver's transaction after some seconds."""

    def sink(self, table: str, **settings: Any) -> SqlSink: ...

    def files(self, query_id: str, **settings: Any) -> SqlFiles: ...
