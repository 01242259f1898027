"""Values on the real server: each arrives exactly as it was, or comes back with its key, column and
reason; what the server would alter is refused before the first row. (Every odd value of every type:
tests/abuse.)
"""

from __future__ import annotations

import base64
import datetime
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from exactum.errors import EpochAborted, FrameRefused, RowsRefused
from exactum.protocol.sink import Rejection
from tests.kit.errors import raised
from tests.kit.sql.postgres_server import Database

pytestmark = pytest.mark.postgres

UTC = datetime.timezone.utc
TYPES = (
    "DOMAIN filled AS numeric(9,2) NOT NULL",
    "DOMAIN filled_deep AS filled",
    "DOMAIN even_length AS text CHECK (length(VALUE) % 2 = 0)",
)


@pytest.fixture
def made(database: Database) -> Iterator[Database]:
    """A database with ``TYPES`` in it."""
    _drop(database)
    for definition in TYPES:
        database.run(f"CREATE {definition}")
    yield database
    database.drop_all()
    _drop(database)


def _drop(database: Database) -> None:
    for definition in reversed(TYPES):
        kind, name = definition.split()[:2]
        database.run(f"DROP {kind} IF EXISTS {name}")


def written(
    database: Database, table: str, spark_type: str, values: Any, **settings: Any
) -> list[Rejection]:
    """One epoch of ``values`` in column ``v``, with ``n`` counted from 0. A slice has an offset into
    its buffers, which is easily forgotten.
    """
    numbers = pa.array(range(len(values)), pa.int32())
    batch = pa.RecordBatch.from_arrays([numbers, values], names=["n", "v"])
    query = database.query(table, (("n", "int"), ("v", spark_type)), **settings)
    return query.write([batch.slice(0, 1), batch.slice(1)])


def money(*values: Any) -> pa.Array:
    kind = pa.decimal128(12, 4)
    return pa.array([v and Decimal(v) for v in values], kind)


# ---- rows ----------------------------------------------------------------------------------------


def test_a_batch_with_other_columns(database: Database) -> None:
    """A batch that lacks a column of its plan, or has one more, is refused whole: nobody's row
    loses a column.
    """
    table = database.table("id bigint, name text")
    frames: list[dict[str, Any]] = [
        {"id": [1], "name": ["a"], "more": ["lost"]},
        {"id": [1]},
        {"id": [1], "other": ["a"]},
    ]
    for frame in frames:
        with raised(FrameRefused, "SQL_COLUMNS", f" {', '.join(frame)},", " id, name "):
            database.query(table).write(pa.RecordBatch.from_pydict(frame))
    assert database.rows(f"SELECT * FROM {table}") == []


def test_a_domain_that_takes_no_null(made: Database) -> None:
    """Nor does one that is made of it."""
    table = made.table("n int PRIMARY KEY, v filled_deep")
    (rejection,) = written(made, table, "decimal(12,4)", money("1.2300", None))
    assert made.rows(f"SELECT v::text FROM {table}") == [("1.23",)]
    assert "must not be null" in rejection.reasons[0]


def test_a_row_without_a_key_is_named_all_the_same(database: Database) -> None:
    """In a table without a unique key the first columns name the row, and the reason says what
    it has.
    """
    (rejection,) = written(
        database, database.table("v varchar(3), n int"), "string", pa.array(["abc", "abcdefg"])
    )
    assert rejection.reasons == (
        "the row with n=1, v='abcdefg': column 'v' (character varying(3)) holds 3 characters, the "
        "row has 7",
    )


# ---- what only the server knows --------------------------------------------------------------------


def test_what_an_index_cannot_hold_is_no_passing_trouble(database: Database) -> None:
    """A key too long for its index is refused as rows are, before the decision: the same again
    would fail again.
    """
    table = database.table("n int, v text PRIMARY KEY")
    noise = base64.b64encode(random.Random(1).randbytes(30_000)).decode()
    with raised(RowsRefused, "ROWS_REFUSED", table, "(54000)"):
        written(database, table, "string", pa.array(["short", noise]))
    assert database.rows(f"SELECT * FROM {table}") == []


@pytest.mark.parametrize(
    ("sql_type", "good", "bad", "words"),
    [
        ("jsonb", '{"a": 1}', '{"a": }', "invalid input syntax for type json"),
        ("json", "[1]", "no JSON", "invalid input syntax for type json"),
        ("jsonb", "0.5", '"\\ud800"', "invalid input syntax for type json"),
        ("inet", "10.0.0.1/32", "10.0.0.256", "invalid input syntax for type inet"),
        ("interval", "01:00:00", "a while", "invalid input syntax for type interval"),
        ("bit(3)", "101", "1010", "bit string length 4 does not match"),
        ("even_length", "ab", "abc", 'violates check constraint "even_length_check"'),
        ("inet[]", ["10.0.0.1/32"], ["10.0.0.1", "nowhere"], "invalid input syntax for type inet"),
    ],
)
def test_rows_that_the_server_alone_refuses_come_back(
    made: Database, sql_type: str, good: Any, bad: Any, words: str
) -> None:
    """Each comes back with its key and the server's words, wherever it is; the rows around it
    are written.
    """
    spoiled = {0, 7, 8, 40}
    values = pa.array([bad if n in spoiled else None if n % 5 == 4 else good for n in range(41)])
    table = made.table(f"n int PRIMARY KEY, v {sql_type}")
    spark_type = "array<string>" if sql_type.endswith("[]") else "string"
    rejections = written(made, table, spark_type, values)
    assert {n for (n,) in made.rows(f"SELECT n FROM {table}")} == set(range(41)) - spoiled
    shown = good if isinstance(good, str) else f"{{{good[0].removesuffix('/32')}}}"
    found = {
        str(v).removesuffix("/32")
        for (v,) in made.rows(f"SELECT v::text FROM {table} WHERE v IS NOT NULL")
    }
    assert found == {shown.removesuffix("/32")}
    reasons = [reason for rejection in rejections for reason in rejection.reasons]
    assert [reason.partition(":")[0] for reason in reasons] == [
        f"the row with n={n}" for n in sorted(spoiled)
    ]
    assert all("PostgreSQL refuses it: " in reason and words in reason for reason in reasons)


def test_a_database_of_another_encoding(database: Database) -> None:
    """A character that the database's encoding lacks: its row comes back, in text as in JSON."""
    database.run(
        "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    url = database.server.url_of("latin")
    batch = pa.RecordBatch.from_pydict(
        {"n": [1, 2, 3, 4], "v": ["é", "漢", "ö", None], "j": [["é"], ["a"], ["漢"], []]}
    )
    columns = (("n", "bigint"), ("v", "string"), ("j", "array<string>"))
    with psycopg.connect(url, autocommit=True, client_encoding="utf8") as latin:
        latin.execute("CREATE TABLE t (n bigint PRIMARY KEY, v varchar(1), j jsonb)")
        (rejection,) = database.query("t", columns, url=url).write(batch)
        found = latin.execute("SELECT * FROM t ORDER BY n").fetchall()
        assert found == [(1, "é", ["é"]), (4, None, [])]
    assert all('has no equivalent in encoding "LATIN1"' in reason for reason in rejection.reasons)
    assert rejection.rows.column("n").to_pylist() == [2, 3]
    database.run("DROP DATABASE latin WITH (FORCE)")


def test_the_order_of_rows_outlives_a_refusal(database: Database) -> None:
    """In an upsert the last row of a key wins, although rows between were put aside by the
    server.
    """
    table = database.table("k int PRIMARY KEY, v jsonb")
    batch = pa.RecordBatch.from_pydict(
        {"k": pa.array([1, 1, 1, 1, 2], pa.int32()), "v": ["1", "bad", "2", "also bad", "3"]}
    )
    query = database.query(table, (("k", "int"), ("v", "string")), mode="upsert", key="k")
    rejections = query.write([batch, batch.slice(0, 2)], batch.slice(4))
    assert sorted(database.rows(f"SELECT k, v FROM {table}")) == [(1, 1), (2, 3)]
    assert sum(rejection.rows.num_rows for rejection in rejections) == 3


# ---- a type that is replaced -----------------------------------------------------------------------


def test_a_type_that_is_replaced_while_the_query_runs(database: Database) -> None:
    """A column of the same type's name is not of the same type: nothing is rounded."""
    database.run("DROP DOMAIN IF EXISTS rate, rate_before")
    database.run("CREATE DOMAIN rate AS numeric(12,4)")
    table = database.table("k bigint, v rate")
    query = database.query(table, (("k", "bigint"), ("v", "decimal(12,4)")))
    batch = pa.RecordBatch.from_arrays([pa.array([1]), money("1.2345")], names=["k", "v"])
    query.tasks = lambda batch_id: [[batch]]
    driver = query.start()
    driver.run(0)
    database.run("ALTER DOMAIN rate RENAME TO rate_before")
    database.run("CREATE DOMAIN rate AS numeric(12,2)")
    database.run(f"ALTER TABLE {table} ALTER v TYPE rate")
    before = database.rows(f"SELECT * FROM {table}")
    with raised(EpochAborted, "'v'", table, "another type", "rate", "batch 1"):
        driver.run(1)
    driver.close()
    assert database.rows(f"SELECT * FROM {table}") == before
    database.drop_all()
    database.run("DROP DOMAIN rate, rate_before")
