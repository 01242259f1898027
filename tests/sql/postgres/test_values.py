"""Values on the real server: each arrives exactly as it was, or comes back with its key, column and
reason; what the server would alter is refused before the first row. (Every odd value of every type:
tests/abuse.)
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import random
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from exactum.errors import EpochAborted, FrameRefused, RowsRefused
from exactum.protocol.sink import Rejection
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import Query, narrow

pytestmark = pytest.mark.postgres

UTC = datetime.timezone.utc
TYPES = (
    "DOMAIN price AS numeric(9,2)",
    "DOMAIN discount AS price CHECK (VALUE < 100)",
    "DOMAIN filled AS price NOT NULL",
    "DOMAIN filled_deep AS filled",
    "DOMAIN code AS varchar(3)",
    "DOMAIN share AS float8",
    "DOMAIN prices AS numeric(9,2)[]",
    "DOMAIN even_length AS text CHECK (length(VALUE) % 2 = 0)",
    "TYPE tempo AS ENUM ('slow', 'qu\"ick\\')",
    "DOMAIN pace AS tempo",
    "DOMAIN own_pace AS pace",
    "TYPE amount AS (value numeric(9,2), currency char(3))",
    "DOMAIN checked_amount AS amount",
)
"""That users make of others: a value is no less safe in them than in what they are made of."""


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


def kept_and_refused(
    database: Database, sql_type: str, spark_type: str, values: Any
) -> tuple[list[Any], list[str]]:
    """The texts that the server shows of what it holds, by row, and the reasons of the other
    rows.
    """
    table = database.table(f"n int PRIMARY KEY, v {sql_type}")
    rejections = written(database, table, spark_type, values)
    rows = database.rows(f"SELECT v::text FROM {table} ORDER BY n")
    return [text for (text,) in rows], [reason for r in rejections for reason in r.reasons]


def not_utf8(values: list[bytes | None]) -> pa.Array:
    """A string array of bytes that nobody has looked at, as Spark's CAST(value AS STRING) makes
    it.
    """
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def money(*values: Any) -> pa.Array:
    kind = pa.decimal128(12, 4)
    if isinstance(values[0], list):
        rows = [[v and Decimal(v) for v in value] for value in values]
        return pa.array(rows, pa.list_(kind))
    return pa.array([v and Decimal(v) for v in values], kind)


CASES: list[tuple[str, str, Any, list[Any], list[str]]] = [
    # the column, Spark's type, values, what is kept as the server shows it, reasons of the others
    ("date", "date", pa.array([2_932_897, -719_163, -2_440_588, 2_145_042_905], pa.int32()).cast(pa.date32()),
     ["10000-01-01", "0001-12-31 BC", "4714-11-24 BC", "5874897-12-31"], []),
    ("date", "date", pa.array([None, -2_440_589, 2_145_042_906, 0], pa.int32()).cast(pa.date32()),
     [None, "1970-01-01"], ["n=1: column 'v' (date) holds the days -4713-11-24 to "
                            "+5874897-12-31, the row has -4713-11-23", "+5874898-01-01"]),
    ("timestamp", "date", pa.array([0, 106_762_939, 106_762_940], pa.int32()).cast(pa.date32()),
     ["1970-01-01 00:00:00", "294276-12-31 00:00:00"], ["the row has +294277-01-01"]),
    ("timestamptz", "timestamp",
     pa.array([253_402_318_799_000_000, -62_135_596_800_000_001, 2**63 - 1, 1], pa.int64())
     .cast(pa.timestamp("us", "America/New_York")),
     ["10000-01-01 04:59:59+00", "0001-12-31 23:59:59.999999+00 BC", "294247-01-10 04:00:54.775807+00",
     "1970-01-01 00:00:00.000001+00"], []),
    ("timestamp", "timestamp_ntz",
     pa.array([-(2**63), -210_866_803_200_000_000, None], pa.int64()).cast(pa.timestamp("us")),
     ["4714-11-24 00:00:00 BC", None], ["holds the times -4713-11-24 00:00:00.000000 to"]),
    ("timestamp(3)", "timestamp_ntz", pa.array([1_001_000, -1_001_000, 1_001], pa.int64()).cast(pa.timestamp("us")),
     ["1970-01-01 00:00:01.001", "1969-12-31 23:59:58.999"], ["3 digits of a second's fraction, the row"]),
    ("timestamptz(0)[]", "array<timestamp>",
     pa.array([[253_402_318_799_000_000, None], [1], []], pa.list_(pa.int64()))
     .cast(pa.list_(pa.timestamp("us", "UTC"))), ['{"10000-01-01 04:59:59+00",NULL}', "{}"], ["holds 0 digits of"]),
    ("date[]", "array<date>", pa.array([[2_932_897, 0], [2**31 - 1], None], pa.list_(pa.int32()))
     .cast(pa.list_(pa.date32())), ["{10000-01-01,1970-01-01}", None], ["an element that it cannot take"]),
    ("double precision", "float", pa.array([0.1, 16_777_216, math.nan, -0.0], pa.float32()),
     ["0.10000000149011612", "16777216", "NaN", "-0"], []),
    ("double precision[]", "array<float>", pa.array([[0.1, None, math.inf]], pa.list_(pa.float32())),
     ["{0.10000000149011612,NULL,Infinity}"], []),
    ("real[]", "array<float>", pa.array([[0.1, 16_777_216]], pa.list_(pa.float32())), ["{0.1,1.6777216e+07}"], []),
    ("numeric(3,2)", "decimal(10,4)", pa.array([Decimal("9.9900"), Decimal("9.995"), Decimal("1.001")],
     pa.decimal128(10, 4)), ["9.99"], ["holds 2 digits after the point, the row "
                                       "has 9.9950", "1.0010"]),
    ("numeric(3,2)[]", "array<decimal(10,4)>", pa.array([[Decimal("9.99"), None], [Decimal("10")]],
     pa.list_(pa.decimal128(10, 4))), ["{9.99,NULL}"], ["holds 1 digits before the point"]),
    ("varchar(3)", "string", pa.array(["abc", "abc   ", "äöü", "four"]), ["abc", "äöü"],
     ["holds 3 characters, the row has 6", "the row has 4"]),
    ("char(3)", "string", pa.array(["ab", "abc   ", "four"]), ["ab", "abc"], ["holds 3 characters, the row has 4"]),
    ("varchar(3)[]", "array<string>", pa.array([["abc", None], ["abc", "four"], ["a\0"]]), ["{abc,NULL}"],
     ["an element that it cannot take: it holds 3 characters", "U+0000"]),
    ("name", "string", pa.array(["x" * 63, "x" * 64]), ["x" * 63], ["holds 63 bytes, the row has 64"]),
    ("time(3)", "string", pa.array(["12:00:00.123", "12:00:00.1234", "2024-01-01 12:00:00", "24:00:00", "1:00"]),
     ["12:00:00.123", "24:00:00"], ["at most 3 digits", "the row has "
                                                        "'2024", "the row has '1:00'"]),
    ("timetz", "string", pa.array(["12:00:00.1+01", "12:00:00", "12:00:00Z"]), ["12:00:00.1+01", "12:00:00+00"],
     ["like 23:59:59+00"]),
    ("uuid", "string", pa.array(["0" * 32, "{00000000-0000-0000-0000-00000000000A}", "no", "0" * 31]),
     [str(uuid.UUID(int=0)), str(uuid.UUID(int=10))], ["holds a UUID, the "
                                                       "row has 'no'", "holds a UUID"]),
    ("uuid[]", "array<string>", pa.array([["0" * 32], ["x"]]), [f"{{{uuid.UUID(int=0)}}}"], ["holds a UUID"]),
    ("jsonb", "struct<a:string,b:decimal(5,2)>",
     pa.array([{"a": None, "b": Decimal("1.50")}, {"a": "x\0", "b": None}],
     pa.struct([("a", pa.string()), ("b", pa.decimal128(5, 2))])), ['{"b": 1.50}'], ["U+0000 in a text"]),
    ("jsonb", "map<string,timestamp>", pa.array([[("a", 253_402_318_799_000_000)], [("\0", None)]],
     pa.map_(pa.string(), pa.int64())).cast(pa.map_(pa.string(), pa.timestamp("us", "America/New_York"))),
     ['{"a": "9999-12-31T16:59:59.000000-12:00"}'], ["U+0000 in a text"]),
    ("json", "array<float>", pa.array([[0.1, None, math.nan]], pa.list_(pa.float32())), ['[0.1,null,"NaN"]'], []),
    ("jsonb", "string", pa.array(['{"a":"\\\\u0000"}', '"\\u0000"', '"\\\\\\u0000"', '"\\\\\\\\u0000"']),
     ['{"a": "\\\\u0000"}', '"\\\\\\\\u0000"'], ["cannot hold \\u0000", "cannot hold \\u0000"]),
    ("discount", "decimal(12,4)", money("1.2300", "1.2390", None), ["1.23", None], ["holds 2 digits after the point"]),
    ("discount", "decimal(12,4)", money("99.99", "100"), ["99.99"], ["discount_check"]),
    ("discount[]", "array<decimal(12,4)>", money(["1.23"], ["100"]), ["{1.23}"], ["discount_check"]),
    ("price[]", "array<decimal(12,4)>", money(["1.23", None], ["1.239"]), ["{1.23,NULL}"],
     ["an element that it cannot take: it holds 2 digits"]),
    ("prices", "array<decimal(12,4)>", money(["1.23"], ["1.239"]), ["{1.23}"], ["holds 2 digits after the point"]),
    ("filled_deep", "decimal(12,4)", money("1.2300", "1.2390", None), ["1.23"],
     ["holds 2 digits after the point", "must not be null"]),
    ("code", "string", pa.array(["abc"]), ["abc"], []),
    ("code[]", "array<string>", pa.array([["abc"], ["abc   "]]), ["{abc}"], ["it holds 3 characters"]),
    ("share", "double", pa.array([0.1]), ["0.1"], []),
    ("tempo", "string", pa.array(['qu"ick\\', "fast", None]), ['qu"ick\\', None], ["holds one of slow"]),
    ("tempo[]", "array<string>", pa.array([['qu"ick\\', None], ["fast"]]), ['{"qu\\"ick\\\\",NULL}'], ["holds one of slow"]),
    ("own_pace", "string", pa.array(["slow", "fast"]), ["slow"], ["holds one of slow, "]),
    ("numeric(3,-2)", "bigint", pa.array([0, 99_900, 99_950, 2**63 - 1]), ["0", "99900"], ["multiples of 100", "digits before"]),
    ("numeric(3,5)", "bigint", pa.array([0, 1]), ["0.00000"], ["holds"]),
]  # fmt: skip


@pytest.mark.variants(12)
@pytest.mark.parametrize(("sql_type", "spark_type", "values", "kept", "words"), CASES)
def test_values_at_the_edge(
    made: Database,
    sql_type: str,
    spark_type: str,
    values: Any,
    kept: list[Any],
    words: list[str],
) -> None:
    """What the column holds is there as the server itself shows it; the rest comes back, and
    nothing is altered, rounded or cut.
    """
    found, reasons = kept_and_refused(made, sql_type, spark_type, values)
    assert found == kept
    assert len(reasons) == len(words), reasons
    for reason, word in zip(reasons, words, strict=True):
        assert word in reason and reason.startswith("the row with n=")


@pytest.mark.parametrize("scale", [-2, 5])
def test_a_numeric_of_another_scale(database: Database, scale: int) -> None:
    """numeric(3,-2) keeps hundreds, numeric(3,5) thousandths and less: all else comes back
    instead of being rounded.
    """
    numbers = [
        Decimal(text)
        for text in ("0", "99900", "-100", "99950", "150", "100000", "0.00999", "0.01", "0.00001")
    ]
    found, reasons = kept_and_refused(
        database, f"numeric(3,{scale})", "decimal(20,5)", pa.array(numbers, pa.decimal128(20, 5))
    )
    assert list(map(Decimal, found)) == [
        numbers[0],
        *(numbers[1:3] if scale < 0 else numbers[6::2]),
    ]
    assert len(reasons) == 6


@pytest.mark.parametrize(
    ("sql_type", "spark_type", "value"),
    [
        *((t, "string", "a") for t in ('"char"', "money", "oid", "regclass", "interval(3)", "interval year to month")),
        ('"char"[]', "array<string>", ["a"]),
        *(("real[]", f"array<{t}>", [1]) for t in ("double", "int", "bigint")),
        ("discount", "string", "1.239"), ("price[]", "array<string>", ["1.239"]),
        *((t, "string", "(1.239,EUR)") for t in ("amount", "checked_amount")),
        ("amount[]", "array<string>", ["(1.239,EUR)"]),
        ("xid8", "string", "none"), ("tid", "string", "(-1,1)"),
    ],
)  # fmt: skip
def test_types_that_would_alter_a_value(
    made: Database, sql_type: str, spark_type: str, value: Any
) -> None:
    """They are refused before the first row: the server would cut, round or reinterpret it, in a
    number under another name and within a row of fields as well.
    """
    with pytest.raises(FrameRefused, match="cannot take it"):
        kept_and_refused(made, sql_type, spark_type, pa.array([value]))


def test_nested_values_as_json(database: Database) -> None:
    """Structs, maps and arrays go into json columns."""
    inner = pa.struct([("a", pa.int32()), ("when", pa.date32()), ("raw", pa.binary())])
    value = {"a": 1, "when": datetime.date(2024, 1, 2), "raw": b"\x00\xff"}
    plain = {"a": 1, "when": "2024-01-02", "raw": "AP8="}
    odd, text = [math.nan, math.inf, -math.inf, 0.5, None], {"k": ["ü", None]}
    for sql_type, spark_type, values, shown in (
        ("jsonb", "struct<a:int>", pa.array([value, None], inner), [plain, None]),
        ("json", "array<struct<a:int>>", pa.array([[value], []], pa.list_(inner)), [[plain], []]),
        ("jsonb", "map<string,bigint>",
         pa.array([[("x", 1)], [], None], pa.map_(pa.string(), pa.int64())), [{"x": 1}, {}, None]),
        ("jsonb", "array<double>", pa.array([odd], pa.list_(pa.float64())), [["NaN", "Infinity", "-Infinity", 0.5, None]]),
        ("jsonb", "string", pa.array([json.dumps(text), None]), [text, None]),
    ):  # fmt: skip
        kept, reasons = kept_and_refused(database, sql_type, spark_type, values)
        assert [v and json.loads(v) for v in kept] == shown
        assert reasons == []


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
        words = f"has the columns {', '.join(frame)}, and the frame had id, name"
        with pytest.raises(FrameRefused, match=words):
            database.query(table).write(pa.RecordBatch.from_pydict(frame))
    assert database.rows(f"SELECT * FROM {table}") == []


def test_text_that_is_no_utf8_comes_back(database: Database) -> None:
    """The rows next to it are written; the bytes themselves come back unchanged with the row."""
    table = database.table("n int PRIMARY KEY, v text")
    values = not_utf8([b"good", b"bad \xff", None, b"\xed\xa0\x80"])
    (rejection,) = written(database, table, "string", values)
    assert sorted(database.rows(f"SELECT n, v FROM {table}")) == [(0, "good"), (2, None)]
    assert rejection.reasons == tuple(
        f"the row with n={n}: column 'v' (text) takes UTF-8 only" for n in (1, 3)
    )
    bad = rejection.rows.column("v").cast(pa.binary()).to_pylist()
    assert bad == [b"bad \xff", b"\xed\xa0\x80"]


def test_rows_that_do_not_fit_are_rejected(database: Database) -> None:
    """Too long, null, out of range, a NUL byte: these rows come back with reasons, the others
    are written. A task all of whose rows are rejected prepares nothing.
    """
    table = database.table("id int PRIMARY KEY, name varchar(5) NOT NULL")
    rows: list[tuple[int, Any]] = [
        (1, "good"), (2, "too long"), (3, None), (2**31, "big"), (5, "a\0b"), (6, "fine"),
    ]  # fmt: skip
    first, second = database.query(table).write(narrow(rows), narrow([(7, "too long")]))
    assert sorted(database.rows(f"SELECT * FROM {table}")) == [(1, "good"), (6, "fine")]
    assert first.rows.column("id").to_pylist() == [2, 3, 2**31, 5]
    for reason, words in zip(
        first.reasons,
        (
            ("id=2", "holds 5 characters"),
            ("id=3", "null"),
            ("id=2147483648", "2147483647"),
            ("id=5", "U+0000"),
        ),
        strict=True,
    ):
        assert all(word in reason for word in words)
    assert second.rows.num_rows == 1


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


def test_create_table_takes_every_type(database: Database) -> None:
    """create_table=True makes a table that gives back what was written, with the key as its
    primary key. Spark's collated strings are text like any other, in arrays as well.
    """
    values: dict[str, tuple[str, Any, Any]] = {
        "k": ("bigint", pa.int64(), 1),
        "b": ("boolean", pa.bool_(), True),
        "i": ("tinyint", pa.int8(), 2),
        "d": ("decimal(10,2)", pa.decimal128(10, 2), Decimal("1.50")),
        "f": ("float", pa.float32(), 0.5),
        "t": ("string", pa.string(), "ü"),
        "c": ("varchar(3)", pa.string(), "abc"),
        "n": ("string collate UNICODE_CI", pa.string(), "a"),
        "y": ("binary", pa.binary(), b"\x00"),
        "at": ("timestamp", pa.timestamp("us", "UTC"), datetime.datetime(2024, 1, 1, tzinfo=UTC)),
        "local": ("timestamp_ntz", pa.timestamp("us"), datetime.datetime(2024, 1, 1)),  # noqa: DTZ001
        "day": ("date", pa.date32(), datetime.date(2024, 1, 1)),
        "many": ("array<int>", pa.list_(pa.int32()), [1, 2]),
        "texts": ("array<string collate UTF8_LCASE>", pa.list_(pa.string()), ["B", None]),
        "deep": ("struct<a:int>", pa.struct([("a", pa.int32())]), {"a": 1}),
    }
    schema = pa.schema([(name, arrow) for name, (_, arrow, _) in values.items()])
    batch = pa.RecordBatch.from_pylist([{n: v for n, (_, _, v) in values.items()}], schema=schema)
    columns = tuple((name, spark) for name, (spark, _, _) in values.items())
    query = database.query("made", columns, create_table=True, mode="upsert", key="k")
    for batch_id in (0, 1):
        assert query.write(batch, batch_id=batch_id) == []
    assert database.rows("SELECT * FROM made") == [tuple(v for _, _, v in values.values())]


# ---- what only the server knows --------------------------------------------------------------------


def test_what_an_index_cannot_hold_is_no_passing_trouble(database: Database) -> None:
    """A key too long for its index is refused as rows are, before the decision: the same again
    would fail again.
    """
    table = database.table("n int, v text PRIMARY KEY")
    noise = base64.b64encode(random.Random(1).randbytes(30_000)).decode()
    with pytest.raises(RowsRefused, match="index row"):
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


def replaced(database: Database, table: str, digits: int) -> None:
    """The column ``v`` gets another domain, under the name of the one that it had."""
    database.run("ALTER DOMAIN rate RENAME TO rate_before")
    database.run(f"CREATE DOMAIN rate AS numeric(12,{digits})")
    database.run(f"ALTER TABLE {table} ALTER v TYPE rate")


@pytest.fixture
def rates(database: Database) -> Iterator[Database]:
    database.run("DROP DOMAIN IF EXISTS rate, rate_before")
    yield database
    database.drop_all()
    database.run("DROP DOMAIN IF EXISTS rate, rate_before")


def rate_query(database: Database, table: str) -> Query:
    query = database.query(table, (("k", "bigint"), ("v", "decimal(12,4)")))
    batch = pa.RecordBatch.from_arrays([pa.array([1]), money("1.2345")], names=["k", "v"])
    query.tasks = lambda batch_id: [[batch]]
    return query


def test_a_type_that_is_replaced_while_the_query_runs(rates: Database) -> None:
    """A column of the same type's name is not of the same type: nothing is rounded."""
    rates.run("CREATE DOMAIN rate AS numeric(12,4)")
    table = rates.table("k bigint, v rate")
    driver = rate_query(rates, table).start()
    driver.run(0)
    replaced(rates, table, 2)
    before = rates.rows(f"SELECT * FROM {table}")
    with pytest.raises(EpochAborted, match=r"(?s)column 'v' .*another type.*start the query"):
        driver.run(1)
    driver.close()
    assert rates.rows(f"SELECT * FROM {table}") == before


def test_a_type_that_is_replaced_between_two_starts(rates: Database) -> None:
    """What the new type holds arrives."""
    rates.run("CREATE DOMAIN rate AS numeric(12,2)")
    table = rates.table("k bigint, v rate")
    query = rate_query(rates, table)
    assert len(query.run(0)) == 1
    assert rates.rows(f"SELECT * FROM {table}") == []
    replaced(rates, table, 4)
    assert query.run(1) == []
    assert rates.rows(f"SELECT * FROM {table}") == [(1, Decimal("1.2345"))]
    assert query.staged() == []
