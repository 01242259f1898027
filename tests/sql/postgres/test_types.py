"""What goes into PostgreSQL's types that hold others, and into tables that are made for a frame. (All
others, with every odd value: tests/abuse.)
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from exactum.sql.postgres.sink import PostgresSink
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import Query

pytestmark = pytest.mark.postgres

UTC = datetime.timezone.utc
_queries = itertools.count(1)


def round_trip(
    database: Database, sql_type: str, spark_type: str, arrow_type: Any, values: list[Any]
) -> list[Any]:
    table = database.table(f"n int, v {sql_type}")
    schema = pa.schema([("n", pa.int32()), ("v", arrow_type)])
    batch = pa.RecordBatch.from_pylist(
        [{"n": n, "v": v} for n, v in enumerate(values)], schema=schema
    )
    # A slice has an offset into its buffers, which is easily forgotten.
    tasks = [[batch.slice(0, 1), batch.slice(1)]]
    query = Query(
        lambda: PostgresSink(database.url, table=table),
        f"types-{next(_queries)}",
        (("n", "int"), ("v", spark_type)),
        lambda batch_id: tasks,
    )
    driver = query.start()
    driver.run(0)
    driver.close()
    assert query.staged() == []
    assert driver.write.rejections == []
    return [
        v for _, v in sorted(database.rows(f"SELECT n, v FROM {table}"), key=lambda row: row[0])
    ]


def test_nested_values_as_json(database: Database) -> None:
    """Structs, maps and arrays go into json columns."""
    inner = pa.struct([("a", pa.int32()), ("when", pa.date32()), ("raw", pa.binary())])
    value = {"a": 1, "when": datetime.date(2024, 1, 2), "raw": b"\x00\xff"}
    plain = {"a": 1, "when": "2024-01-02", "raw": "AP8="}
    assert round_trip(database, "jsonb", "struct<a:int>", inner, [value, None]) == [plain, None]
    assert round_trip(database, "json", "array<struct<a:int>>", pa.list_(inner), [[value], []]) == [
        [plain],
        [],
    ]
    mapping = pa.map_(pa.string(), pa.int64())
    assert round_trip(database, "jsonb", "map<string,bigint>", mapping, [[("x", 1)], [], None]) == [
        {"x": 1},
        {},
        None,
    ]
    odd = [[math.nan, math.inf, -math.inf, 0.5, None]]
    shown = [["NaN", "Infinity", "-Infinity", 0.5, None]]
    assert round_trip(database, "jsonb", "array<double>", pa.list_(pa.float64()), odd) == shown
    text = json.dumps({"k": ["ü", None]})
    assert round_trip(database, "jsonb", "string", pa.string(), [text, None]) == [
        {"k": ["ü", None]},
        None,
    ]


def test_enums_and_domains(database: Database) -> None:
    """Types of the user's own take text, or what they are based on, with the limits of that."""
    database.run("DROP TYPE IF EXISTS mood; DROP DOMAIN IF EXISTS short")
    database.run("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    database.run("CREATE DOMAIN short AS varchar(3) CHECK (VALUE <> 'bad')")
    assert round_trip(database, "mood", "string", pa.string(), ["sad", None]) == ["sad", None]
    assert round_trip(database, "short", "string", pa.string(), ["abc", None]) == ["abc", None]


def test_create_table_takes_every_type(database: Database) -> None:
    """create_table=True makes a table that gives back what was written, with the key as its
    primary key.
    """
    values: dict[str, tuple[str, Any, Any]] = {
        "k": ("bigint", pa.int64(), 1),
        "b": ("boolean", pa.bool_(), True),
        "i": ("tinyint", pa.int8(), 2),
        "d": ("decimal(10,2)", pa.decimal128(10, 2), Decimal("1.50")),
        "f": ("float", pa.float32(), 0.5),
        "t": ("string", pa.string(), "ü"),
        "c": ("varchar(3)", pa.string(), "abc"),
        "y": ("binary", pa.binary(), b"\x00"),
        "at": ("timestamp", pa.timestamp("us", "UTC"), datetime.datetime(2024, 1, 1, tzinfo=UTC)),
        "local": ("timestamp_ntz", pa.timestamp("us"), datetime.datetime(2024, 1, 1)),  # noqa: DTZ001
        "day": ("date", pa.date32(), datetime.date(2024, 1, 1)),
        "many": ("array<int>", pa.list_(pa.int32()), [1, 2]),
        "deep": ("struct<a:int>", pa.struct([("a", pa.int32())]), {"a": 1}),
    }
    schema = pa.schema([(name, arrow) for name, (_, arrow, _) in values.items()])
    batch = pa.RecordBatch.from_pylist([{n: v for n, (_, _, v) in values.items()}], schema=schema)
    query = Query(
        lambda: PostgresSink(database.url, table="made", create_table=True, mode="upsert", key="k"),
        "made",
        tuple((name, spark) for name, (spark, _, _) in values.items()),
        lambda batch_id: [[batch]],
    )
    driver = query.start()
    driver.run(0)
    driver.run(1)
    driver.close()
    assert database.rows("SELECT * FROM made") == [tuple(v for _, _, v in values.values())]
