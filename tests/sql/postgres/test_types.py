"""Every type that a frame can have, through COPY into PostgreSQL, unchanged."""

from __future__ import annotations

import datetime
import itertools
import json
import math
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from exactum.sql.postgres.sink import PostgresSink
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_database import NOTHING
from tests.kit.sql.sql_epochs import Query

pytestmark = pytest.mark.postgres

UTC = datetime.timezone.utc
_queries = itertools.count(1)

TEXTS = [
    "",
    " ",
    "NULL",
    "\\N",
    "\\.",
    "before\n\\.\nafter",
    'say "so"',
    "a,b;c\td",
    "back\\slash\\",
    "line\nfeed\r\nreturn\rend",
    "Grüße, 世界, 🎈",
    "'single' %s %%",
    "x" * 100_000,
    None,
]

CASES: list[tuple[str, str, Any, list[Any]]] = [
    ("boolean", "boolean", pa.bool_(), [True, False, None]),
    ("smallint", "tinyint", pa.int8(), [-128, 127, None]),
    ("smallint", "smallint", pa.int16(), [-(2**15), 2**15 - 1, None]),
    ("integer", "int", pa.int32(), [-(2**31), 2**31 - 1, 0, None]),
    ("bigint", "bigint", pa.int64(), [-(2**63), 2**63 - 1, None]),
    ("numeric", "bigint", pa.int64(), [-(2**63), 2**63 - 1, None]),
    ("double precision", "int", pa.int32(), [-(2**31), 2**31 - 1, None]),
    ("real", "float", pa.float32(), [1.5, -0.0, 3.4028234663852886e38, 1e-45, math.inf, None]),
    (
        "double precision",
        "double",
        pa.float64(),
        [0.1, 1.7976931348623157e308, 5e-324, -math.inf, None],
    ),
    ("double precision", "float", pa.float32(), [0.5, None]),
    (
        "numeric(38,10)",
        "decimal(38,10)",
        pa.decimal128(38, 10),
        [Decimal("9" * 28 + ".1234567890"), None],
    ),
    (
        "numeric(5,2)",
        "decimal(5,2)",
        pa.decimal128(5, 2),
        [Decimal("-999.99"), Decimal("0.00"), None],
    ),
    ("numeric", "decimal(20,18)", pa.decimal128(20, 18), [Decimal("0.000000000000000001"), None]),
    ("text", "string", pa.string(), TEXTS),
    ("text", "string", pa.large_string(), TEXTS),
    ("text", "string collate UNICODE_CI", pa.string(), ["ü", None]),
    ("character varying(10)", "string", pa.string(), ["", "ten chars!", "zehn äöüß!", None]),
    ("bytea", "binary", pa.binary(), [b"", b'\x00\xff\\x41,"\n', bytes(range(256)), None]),
    ("bytea", "binary", pa.large_binary(), [b"abc", None, b""]),
    ("date", "date", pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
    (
        "timestamp",
        "timestamp_ntz",
        pa.timestamp("us"),
        [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999), None],  # noqa: DTZ001
    ),
    (
        "timestamp with time zone",
        "timestamp",
        pa.timestamp("us", "America/New_York"),
        [
            datetime.datetime(1969, 12, 31, 23, 0, 0, 1, UTC),
            datetime.datetime(2024, 3, 10, 7, 30, tzinfo=UTC),
            None,
        ],
    ),
    ("uuid", "string", pa.string(), [str(uuid.UUID(int=7)), None]),
    ("inet", "string", pa.string(), ["10.0.0.1", None]),
    ("interval", "string", pa.string(), ["01:00:00", None]),
    ("integer[]", "array<int>", pa.list_(pa.int32()), [[1, None, 3], [], None]),
    (
        "text[]",
        "array<string>",
        pa.list_(pa.string()),
        [["", 'q"\\', "{a,b}", "NULL", None, "ü\n"], None],
    ),
    ("boolean[]", "array<boolean>", pa.list_(pa.bool_()), [[True, False, None], None]),
    (
        "numeric(5,2)[]",
        "array<decimal(5,2)>",
        pa.list_(pa.decimal128(5, 2)),
        [[Decimal("1.50")], None],
    ),
    ("date[]", "array<date>", pa.list_(pa.date32()), [[datetime.date(2024, 2, 29)], None]),
    ("bytea[]", "array<binary>", pa.list_(pa.binary()), [[b'\x00"', b""], None]),
]


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
    assert database.leftovers() == NOTHING
    assert driver.write.rejections == []
    return [
        v for _, v in sorted(database.rows(f"SELECT n, v FROM {table}"), key=lambda row: row[0])
    ]


@pytest.mark.variants(1)
@pytest.mark.parametrize(("sql_type", "spark_type", "arrow_type", "values"), CASES)
def test_values_come_back(
    database: Database, sql_type: str, spark_type: str, arrow_type: Any, values: Any
) -> None:
    """What was in the frame is in the table, bit for bit, nulls and empty strings apart."""
    found = round_trip(database, sql_type, spark_type, arrow_type, values)
    if sql_type in ("uuid", "inet", "interval"):
        found = [None if v is None else str(v).split("/")[0].zfill(8) for v in found]
        values = [None if v is None else v.zfill(8) for v in values]
    if sql_type == "real":  # the client gives the shortest text's value, which is another double
        found, values = (pa.array(v, pa.float32()).to_pylist() for v in (found, values))
    assert found == values


def test_nan_comes_back(database: Database) -> None:
    """NaN is a value in PostgreSQL."""
    found = round_trip(database, "double precision", "double", pa.float64(), [math.nan, 1.0])
    assert math.isnan(found[0]) and found[1] == 1.0


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
