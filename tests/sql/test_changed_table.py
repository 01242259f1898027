"""A table that is changed while a query writes to it, or between the decision and the commit of its
rows: the query stops once, no value is rounded, and no row goes without a word.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import EpochAborted, HeuristicOutcome, SettingRefused
from exactum.protocol.model import CommitPermit
from exactum.protocol.sink import Guarantee
from exactum.sql.table import Column, ColumnLimits, Kind, keeps
from tests.kit.errors import raised
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import Columns, Query, narrow
from tests.sql.test_epochs import permit, rows_in

COLUMNS: Columns = (
    ("k", "bigint"),
    ("money", "decimal(12,4)"),
    ("at", "timestamp_ntz"),
    ("ratio", "double"),
    ("name", "string"),
)
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("money", pa.decimal128(12, 4)),
        ("at", pa.timestamp("us")),
        ("ratio", pa.float64()),
        ("name", pa.string()),
    ]
)
MOMENTS = {"postgres": "timestamp", "mysql": "datetime"}
TABLE = (
    "k bigint PRIMARY KEY, money decimal(12,4), at {moment}(6), ratio float(53), name varchar(9)"
)
WAYS: dict[str, tuple[Guarantee, dict[str, str]]] = {
    "append": (Guarantee.EXACTLY_ONCE, {}),
    "upsert": (Guarantee.EXACTLY_ONCE, {"mode": "upsert", "key": "k"}),
    "delivered": (Guarantee.AT_LEAST_ONCE, {}),
}


def batch_of(batch_id: int) -> pa.RecordBatch:
    """One row; every digit of it counts."""
    row = (2**53 + 1 + batch_id, Decimal("1234.5678"), 1_700_000_000_123_456, 1 / 3, "name")
    return pa.RecordBatch.from_arrays(
        [pa.array([value], field.type) for value, field in zip(row, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


@pytest.fixture
def table(database: SqlDatabase) -> str:
    return database.table(TABLE.format(moment=MOMENTS[database.dialect.scheme]))


def query_on(database: SqlDatabase, table: str, way: str) -> Query:
    guarantee, settings = WAYS[way]
    query = database.query(table, COLUMNS, **settings)
    query.guarantee, query.tasks = guarantee, lambda batch_id: [[batch_of(batch_id)]]
    return query


def alter(database: SqlDatabase, table: str, column: str, became: str) -> None:
    became = became.format(moment=MOMENTS[database.dialect.scheme])
    how = f"ALTER {column} TYPE" if database.dialect.scheme == "postgres" else f"MODIFY {column}"
    database.run(f"ALTER TABLE {table} {how} {became}")


def put_back(database: SqlDatabase, table: str, column: str) -> None:
    declared = dict(part.split(" ", 1) for part in TABLE.split(", "))
    alter(database, table, column, declared[column].removesuffix(" PRIMARY KEY"))


def whole(batch_id: int) -> tuple[Any, ...]:
    """The row of a batch, of its moment the fraction of the second, in microseconds."""
    return (2**53 + 1 + batch_id, Decimal("1234.5678"), 123456, 1 / 3, "name")


def whole_rows(database: SqlDatabase, table: str) -> list[tuple[Any, ...]]:
    rows = database.rows(f"SELECT k, money, at, ratio, name FROM {table} ORDER BY k")
    return [(k, money, at.microsecond, ratio, name) for k, money, at, ratio, name in rows]


@pytest.mark.parametrize(
    ("way", "column", "became", "is_narrower"),
    [
        ("append", "money", "decimal(12,2)", True),
        ("upsert", "at", "{moment}(3)", True),
        ("delivered", "ratio", "float(24)", True),
        ("append", "k", "float(53)", True),
        ("upsert", "money", "decimal(14,6)", False),
        ("delivered", "name", "varchar(80)", False),
    ],
)
def test_a_column_that_is_changed_under_a_run(
    database: SqlDatabase, table: str, way: str, column: str, became: str, is_narrower: bool
) -> None:
    """The batch is refused, whatever its values are. The next start goes on with what has become
    wider; with what was narrower when it is as it was.
    """
    driver = query_on(database, table, way).start()
    driver.carry_out(0)
    alter(database, table, column, became)
    before = database.rows(f"SELECT * FROM {table}")
    with raised(EpochAborted, f"'{column}'", table, "batch 1"):
        driver.carry_out(1)
    driver.close()
    assert database.rows(f"SELECT * FROM {table}") == before
    if is_narrower:
        put_back(database, table, column)
    again = driver.query.start()
    for batch_id in (1, 2):
        again.carry_out(batch_id)
    again.close()
    assert whole_rows(database, table)[1:] == [whole(1), whole(2)]
    if way != "delivered":  # there a start sweeps, which this harness leaves out
        assert driver.query.staged() == []


@pytest.mark.parametrize("way", ["append", "upsert"])
@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ("DROP COLUMN ratio", ("'ratio'", "is not there")),
        ("ADD COLUMN shop bigint NOT NULL", ("'shop'", "NOT NULL")),
    ],
)
def test_a_column_that_goes_or_has_to_be_filled(
    database: SqlDatabase, table: str, way: str, change: str, facts: tuple[str, ...]
) -> None:
    """No row is at fault: the attempt ends, and the next start says what the table wants."""
    driver = query_on(database, table, way).start()
    database.run(f"ALTER TABLE {table} {change}")
    with raised(EpochAborted, *facts, "batch 0"):
        driver.carry_out(0)
    driver.close()
    assert database.value(f"SELECT count(*) FROM {table}") == 0


NOT_KEPT = {
    "postgres": [
        ("ALTER TABLE {table} SET UNLOGGED", "SET LOGGED", "ALTER TABLE {table} SET LOGGED"),
        (
            "CREATE RULE away AS ON INSERT TO {table} WHERE NEW.k > 0 DO INSTEAD NOTHING",
            "'away'",
            "DROP RULE away ON {table}",
        ),
    ],
    "mysql": [
        (
            "ALTER TABLE {table} ENGINE=MyISAM",
            " MyISAM;",
            "ALTER TABLE {table} ENGINE=InnoDB",
        )
    ],
}


@pytest.mark.variants(1)
@pytest.mark.parametrize("way", WAYS)
def test_a_table_of_which_nothing_can_be_promised_any_more(
    database: SqlDatabase, table: str, way: str
) -> None:
    """The query ends with the word that a start would have, before a row is written, and goes on
    once the table is what it was.
    """
    driver = query_on(database, table, way).start()
    driver.carry_out(0)
    for batch_id, (change, said, back) in enumerate(NOT_KEPT[database.dialect.scheme], 1):
        before = database.rows(f"SELECT k FROM {table} ORDER BY k")
        database.run(change.format(table=table))
        with raised(SettingRefused, "SQL_REFUSED", "[SQL_TABLE_KIND]", table, said):
            driver.carry_out(batch_id)
        driver.close()
        database.run(back.format(table=table))
        assert database.rows(f"SELECT k FROM {table} ORDER BY k") == before
        driver = driver.query.start()
        driver.carry_out(batch_id)
        found = database.rows(f"SELECT k FROM {table} ORDER BY k")
        assert found == [*before, (2**53 + 1 + batch_id,)]
    driver.close()


# ---- between decision and commit -----------------------------------------------------------------

OLD = [(k, "old") for k in range(1, 5)]
NEW = [(k, "new") for k in range(1, 5)]


def finish(query: Query, allowed: CommitPermit) -> None:
    """As ``exactum transactions finish`` does: without the sink of a run."""
    sink = query.sink()
    inspector = sink.inspector(query.query_id, sink.name, query.storage_of_rows)
    try:
        inspector.participant().commit(allowed, allowed.record.of(sink.name))
    finally:
        inspector.close()


def test_an_upserts_key_that_is_dropped(database: SqlDatabase) -> None:
    """MySQL adds rows then; PostgreSQL refuses the statement."""
    table = database.table("id bigint, name varchar(50), CONSTRAINT only_one UNIQUE (id)")
    query = database.query(table, mode="upsert", key=["id"])
    query.tasks = lambda batch_id: [[narrow(OLD if batch_id == 0 else NEW)]]
    query.die_before_commit(0, 1)
    allowed = permit(query, 1)
    drop = "CONSTRAINT" if database.dialect.scheme == "postgres" else "INDEX"
    database.run(f"ALTER TABLE {table} DROP {drop} only_one")
    with raised(HeuristicOutcome, "TARGET_REFUSES", "(id)", table):
        finish(query, allowed)
    assert rows_in(database, table) == OLD
    database.run(f"ALTER TABLE {table} ADD CONSTRAINT only_one UNIQUE (id)")
    finish(query, allowed)
    assert rows_in(database, table) == NEW


@pytest.mark.parametrize(
    ("way", "column", "became", "is_narrower"),
    [
        ("append", "money", "decimal(12,2)", True),
        ("append", "at", "{moment}(0)", True),
        ("upsert", "money", "decimal(12,3)", True),
        ("upsert", "name", "char(9)", True),
        ("append", "money", "decimal(14,6)", False),
        ("append", "name", "varchar(80)", False),
        ("upsert", "name", "text", False),
    ],
)
def test_a_column_that_is_changed_under_what_is_decided(
    database: SqlDatabase, table: str, way: str, column: str, became: str, is_narrower: bool
) -> None:
    """Neither a start nor 'finish' gives the server a value that it would round. With the column as
    it was, or wider, the rows come whole.
    """
    query = query_on(database, table, way)
    query.die_before_commit(0)
    allowed = permit(query, 0)
    alter(database, table, column, became)
    if is_narrower:
        said = ("TARGET_REFUSES", f"column '{column}' of", "Put the column back as it was")
        with raised(HeuristicOutcome, *said):
            finish(query, allowed)
        with raised(HeuristicOutcome, *said):
            query.run(0)
        assert whole_rows(database, table) == []
        put_back(database, table, column)
        query.run(0)
    else:
        finish(query, allowed)
    assert whole_rows(database, table) == [whole(0)]


def column(kind: Kind, type_: str = "", *, nullable: bool = True, **limits: Any) -> Column:
    return Column("c", type_, kind, nullable, limits=ColumnLimits(**limits))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (column(Kind.DECIMAL), column(Kind.DECIMAL, precision=38, scale=10)),
        (column(Kind.DECIMAL, precision=9, scale=2), column(Kind.DECIMAL, precision=9, scale=1)),
        (column(Kind.TIMESTAMP_TZ), column(Kind.TIMESTAMP_TZ, scale=0)),
        (column(Kind.TIMESTAMP, scale=6), column(Kind.TIMESTAMP_TZ, scale=6)),
        (column(Kind.FLOAT, precision=53), column(Kind.FLOAT, precision=24)),
        (column(Kind.TEXT, length_max=9), column(Kind.TEXT, length_max=8)),
        (column(Kind.TEXT, length_max=9), column(Kind.TEXT, length_max=35, length_in_bytes=True)),
        (column(Kind.TEXT), column(Kind.TEXT, length_max=9, trailing_spaces_free=True)),
        (column(Kind.TEXT), column(Kind.TEXT, character_max=0xFFFF)),
        (column(Kind.BYTES, length_max=9), column(Kind.BYTES, length_min=9, length_max=9)),
        (column(Kind.OTHER, "interval"), column(Kind.OTHER, "inet")),
        (column(Kind.JSON, "json"), column(Kind.JSON, "jsonb")),
        (column(Kind.INTEGER), column(Kind.INTEGER, nullable=False)),
    ],
)
def test_what_a_server_would_change_without_a_word(before: Column, now: Column) -> None:
    """Of an array's elements as well; the same column keeps what it has."""
    arrays = [replace(column(Kind.ARRAY), element=element) for element in (now, before)]
    assert not keeps(now, before)
    assert keeps(before, before)
    assert not keeps(*arrays)
