"""Rows go in COPY's binary format where each column has one. (Every odd value of every type, in
both formats: tests/abuse.)
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from exactum.sql.postgres import rows as encoders
from exactum.sql.postgres.dialect import PostgresDialect
from exactum.sql.postgres.session import PostgresSession
from exactum.sql.table import Column, TableName
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import narrow

pytestmark = pytest.mark.postgres

AS_TEXT: list[tuple[str, Any]] = [
    ("text[]", pa.list_(pa.string())),
    ("jsonb", pa.string()),
    ("uuid", pa.string()),
    ("numeric(38,2)", pa.decimal128(38, 2)),
]
"""What has no binary form here, so that its table is sent as text."""


def session_of(database: Database) -> PostgresSession:
    session = PostgresDialect().connect(database.address, "test", 5.0)
    assert isinstance(session, PostgresSession)
    return session


def columns_of(database: Database, table: str) -> tuple[Column, ...]:
    session = session_of(database)
    found = PostgresDialect().read_table(session, TableName(None, table))
    session.close()
    assert found is not None
    return tuple(c for c in found.columns if not c.name.startswith("exactum_"))


@pytest.mark.parametrize(("sql_type", "kind"), AS_TEXT)
def test_other_columns_go_as_text(database: Database, sql_type: str, kind: Any) -> None:
    """One of them is enough."""
    table = database.table(f"a bigint, b {sql_type}")
    columns = columns_of(database, table)
    assert encoders.binary_rows(columns, [pa.int64(), kind]) is None
    assert encoders.binary_rows(columns[:1], [pa.int64()]) is not None


def test_large_batches_go_in_pieces(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row once, and in its order: in an upsert the last one of a key stays."""
    monkeypatch.setattr(encoders, "CHUNK_ROWS", 3)
    table = database.table("id bigint PRIMARY KEY, name text")
    rows = [(number // 2, f"row {number}") for number in range(11)]
    assert database.query(table, mode="upsert", key="id").write(narrow(rows)) == []
    assert sorted(database.rows(f"SELECT * FROM {table}")) == sorted(dict(rows).items())
