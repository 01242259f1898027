"""Upserts: the last row of a key wins, "last" is defined, deletions, and exactly
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import Unavailable
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import SourceOffsets
from exactum.sql import session as retrying_session
from tests.kit.errors import raised
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import Columns, Query

COLUMNS: Columns = (("k", "bigint"), ("v", "string"), ("at", "bigint"), ("gone", "boolean"))
SCHEMA = pa.schema(
    [("k", pa.int64()), ("v", pa.string()), ("at", pa.int64()), ("gone", pa.bool_())]
)
TABLE = "k bigint PRIMARY KEY, v text, at bigint"

Row = tuple[Any, Any, Any, Any]


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA
    )


def query_on(
    database: SqlDatabase, table: str, columns: Columns = COLUMNS, **settings: Any
) -> Query:
    settings = {"mode": "upsert", "key": "k", "delete_when": "gone", **settings}
    return database.query(table, columns, **settings)


def after(
    database: SqlDatabase, table: str, *tasks: Sequence[Row], **settings: Any
) -> list[tuple[Any, ...]]:
    """The table after one epoch of these tasks."""
    query_on(database, table, **settings).write(*map(batch, tasks))
    return sorted(database.rows(f"SELECT k, v, at FROM {table}"))


def test_the_last_row_of_a_key_wins(database: SqlDatabase) -> None:
    """Within a task by its order, over tasks by Spark's partition number, whichever was written
    first.
    """
    table = database.table(TABLE)
    database.run(f"INSERT INTO {table} VALUES (1, 'before', 0), (9, 'untouched', 0)")
    found = after(
        database,
        table,
        [(1, "a", 9, False), (2, "b", 9, False), (1, "c", 8, None)],
        [(2, "d", 1, False), (3, "e", 1, False)],
    )
    assert found == [(1, "c", 8), (2, "d", 1), (3, "e", 1), (9, "untouched", 0)]


def test_order_by_says_what_is_last(database: SqlDatabase) -> None:
    """The greatest value wins wherever it stands; null is lowest; equal ones go by their place."""
    table = database.table(TABLE)
    found = after(
        database,
        table,
        [(1, "newest", 7, False), (1, "older", 3, False), (2, "null", None, False)],
        [
            (2, "one", 1, False),
            (3, "first", 5, False),
            (3, "second", 5, False),
            (1, "null", None, False),
        ],
        order_by="at",
    )
    assert found == [(1, "newest", 7), (2, "one", 1), (3, "second", 5)]


def test_delete_when_deletes(database: SqlDatabase) -> None:
    """A last change that is a deletion removes the row; an earlier one does not; null means no."""
    table = database.table(TABLE)
    database.run(f"INSERT INTO {table} VALUES (1, 'old', 0), (2, 'old', 0), (3, 'old', 0)")
    found = after(
        database,
        table,
        [(1, None, 1, True), (2, None, 1, True), (2, "again", 2, False), (4, "short", 1, None)],
        [(4, None, 2, True), (5, None, 1, True), (3, "kept", 1, None)],
    )
    assert found == [(2, "again", 2), (3, "kept", 1)]


def test_a_key_of_several_columns(database: SqlDatabase) -> None:
    """The key may be several columns, in any order, and all that the table has."""
    table = database.table("b varchar(20), a int, PRIMARY KEY (a, b)")
    columns: Columns = (("a", "int"), ("b", "string"))
    rows = pa.RecordBatch.from_pylist(
        [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 1, "b": "x"}],
        schema=pa.schema([("a", pa.int32()), ("b", pa.string())]),
    )
    query_on(database, table, columns, key=["b", "a"], delete_when=None).write(rows)
    assert sorted(database.rows(f"SELECT a, b FROM {table}")) == [(1, "x"), (1, "y")]


def test_a_null_in_the_key_is_rejected(database: SqlDatabase) -> None:
    """A null never equals another one: it would be inserted again and again."""
    table = database.table("k bigint UNIQUE, v text, at bigint")
    rows = batch([(None, "x", 1, False), (1, "y", 1, False)])
    (rejection,) = query_on(database, table).write(rows)
    assert database.rows(f"SELECT k, v FROM {table}") == [(1, "y")]
    assert rejection.rows.to_pylist() == [{"k": None, "v": "x", "at": 1, "gone": False}]
    assert "part of the key" in rejection.reasons[0]


def test_columns_that_are_not_written_keep_their_values(database: SqlDatabase) -> None:
    """An upsert changes what it writes; a new row takes the table's defaults."""
    table = database.table(f"{TABLE}, kept int NOT NULL DEFAULT 7")
    database.run(f"INSERT INTO {table} VALUES (1, 'old', 0, 8)")
    after(database, table, [(1, "new", 1, False), (2, "new", 1, False)])
    assert sorted(database.rows(f"SELECT k, v, kept FROM {table}")) == [
        (1, "new", 8),
        (2, "new", 7),
    ]


def test_two_sinks_of_a_query_that_meet_in_a_key(
    database: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds its transaction until the decision, so the second never gets the row: the error
    says that it may be so, and where to read on. Nothing is visible.
    """
    monkeypatch.setattr(retrying_session, "LOCK_TIMEOUT_S", 1.0)
    monkeypatch.setattr(retrying_session, "TIMEOUT_S", 0.0)
    table = database.table(TABLE)
    first = query_on(database, table)
    first.tasks = lambda _: [[batch([(1, "an order", 0, False)])]]
    drivers = [query.start() for query in (first, replace(first, participant="second"))]
    both = Coordinator(drivers[0].run_of, [d.participant for d in drivers], drivers[0].log)
    with raised(Unavailable, "another sink of the query", "docs/databases.md"):
        both.run(0, SourceOffsets(), lambda order: [p for d in drivers for p in d.write(order)])
    for driver in drivers:
        driver.close()
    assert database.rows(f"SELECT k FROM {table}") == []
