"""The rules of columns on Arrow batches: what is refused, with which words, and what is let
through.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from exactum.sql.rows import TableRules
from exactum.sql.table import Column, ColumnLimits, Form, Kind

TEXT_10 = Column("v", "character varying(10)", Kind.TEXT, limits=ColumnLimits(length_max=10))
CHAR_10 = Column(
    "v", "character(10)", Kind.TEXT, limits=ColumnLimits(length_max=10, trailing_spaces_free=True)
)
NO_NUL = Column("v", "text", Kind.TEXT, limits=ColumnLimits(nul_allowed=False))
AT = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
DAY = (datetime.date(2024, 1, 2) - datetime.date(1970, 1, 1)).days


def kept(column: Column, arrow_type: Any, values: list[Any]) -> tuple[list[Any], tuple[str, ...]]:
    """The values that the column takes, and the reasons for the others."""
    batch = pa.RecordBatch.from_arrays([pa.array(values, arrow_type)], names=["v"])
    # With an offset, as in a slice of a larger batch.
    twice = pa.Table.from_batches([batch.slice(0, 1), batch]).combine_chunks().to_batches()[0]
    accepted, rejection = TableRules((column,), ("v",)).split(twice.slice(1))
    return accepted.column(0).to_pylist(), () if rejection is None else rejection.reasons


@pytest.mark.parametrize(
    ("column", "arrow_type", "good", "bad", "words"),
    [
        (Column("v", "smallint", Kind.INTEGER, limits=ColumnLimits(-(2**15), 2**15 - 1)), pa.int64(),
         [-(2**15), 2**15 - 1, None], [-(2**15) - 1, 2**15, 2**63 - 1], "holds -32768 to 32767"),
        (Column("v", "bigint unsigned", Kind.INTEGER, limits=ColumnLimits(0, 2**64 - 1)), pa.int64(),
         [0, 2**63 - 1, None], [-1], "holds 0 to"),
        (Column("v", "numeric(5,2)", Kind.DECIMAL, limits=ColumnLimits(precision=5, scale=2)), pa.decimal128(10, 4),
         [Decimal("999.9900"), Decimal("-999.9900"), None], [Decimal("1000"), Decimal("-1000")],
         "holds 3 digits before the point"),
        (Column("v", "numeric(5,2)", Kind.DECIMAL, limits=ColumnLimits(precision=5, scale=2)), pa.decimal128(10, 4),
         [Decimal("0.0100"), None], [Decimal("0.0001"), Decimal("-999.9949")], "holds 2 digits after the point"),
        (Column("v", "numeric(3,-2)", Kind.DECIMAL, limits=ColumnLimits(precision=3, scale=-2)), pa.int32(),
         [99900, -100, 0, None], [100_000, -(2**31)], "holds 5 digits before the point"),
        (Column("v", "numeric(3,-2)", Kind.DECIMAL, limits=ColumnLimits(precision=3, scale=-2)), pa.int8(),
         [100, -100, 0, None], [99, 1, -128], "holds multiples of 100"),
        (Column("v", "numeric(3,-2)", Kind.DECIMAL, limits=ColumnLimits(precision=3, scale=-2)), pa.decimal128(7, 2),
         [Decimal("99900.00"), None], [Decimal("99950"), Decimal("0.01"), Decimal("150")], "holds multiples of 100"),
        (Column("v", "numeric(2,-20)", Kind.DECIMAL, limits=ColumnLimits(precision=2, scale=-20)), pa.int64(),
         [0, None], [1, 2**63 - 1], "holds multiples of 100000000000000000000"),
        (Column("v", "numeric(2,-20)", Kind.DECIMAL, limits=ColumnLimits(precision=2, scale=-20)), pa.decimal128(9, 2),
         [Decimal(0), None], [Decimal("0.01"), Decimal("-9999999")], "holds multiples of"),
        (Column("v", "numeric(2,4)", Kind.DECIMAL, limits=ColumnLimits(precision=2, scale=4)), pa.decimal128(9, 4),
         [Decimal("0.0099"), Decimal("-0.0099"), None], [Decimal("0.01"), Decimal("-1")], "2 zeros after it"),
        (Column("v", "numeric(2,4)", Kind.DECIMAL, limits=ColumnLimits(precision=2, scale=4)), pa.int32(),
         [0, None], [1, -1], "2 zeros after it"),
        (Column("v", "numeric(2,4)", Kind.DECIMAL, limits=ColumnLimits(precision=2, scale=4)), pa.decimal128(3, 1),
         [Decimal(0), None], [Decimal("0.1"), Decimal(-1)], "2 zeros after it"),
        (Column("v", "decimal(5,2) unsigned", Kind.DECIMAL, limits=ColumnLimits(lowest=0)), pa.decimal128(5, 2),
         [Decimal(0), None], [Decimal("-0.01")], "no negative numbers"),
        (Column("v", "smallint", Kind.INTEGER, limits=ColumnLimits(-(2**15), 2**15 - 1)), pa.decimal128(20, 0),
         [Decimal(-(2**15)), Decimal(2**15 - 1), None], [Decimal(2**15), Decimal(-(10**19))], "holds -32768 to"),
        (Column("v", "bigint", Kind.INTEGER, limits=ColumnLimits(-(2**63), 2**63 - 1)), pa.decimal128(20, 0),
         [Decimal(2**63 - 1), None], [Decimal(2**63)], "holds -9223372036854775808 to"),
        (Column("v", "numeric(5,2)", Kind.DECIMAL, limits=ColumnLimits(precision=5, scale=2)), pa.int64(),
         [999, -999, None], [1000, -1000, -(2**63)], "holds 3 digits before the point"),
        (Column("v", "numeric(38,0)", Kind.DECIMAL, limits=ColumnLimits(precision=38, scale=0)), pa.decimal128(38, 0),
         [Decimal("9" * 38), None], [], ""),
        (Column("v", "numeric", Kind.DECIMAL), pa.decimal128(38, 2), [Decimal("9" * 36), None], [], ""),
        (Column("v", "float", Kind.FLOAT, limits=ColumnLimits(nan_allowed=False)), pa.float64(),
         [1.0, -1e308, None], [math.nan, math.inf, -math.inf], "cannot hold NaN"),
        (Column("v", "float", Kind.FLOAT, limits=ColumnLimits(magnitude_max=10.0)), pa.float64(),
         [10.0, math.inf, None], [10.1, -11.0], "holds values up to 10"),
        (TEXT_10, pa.string(), ["zehn äöüß!", "short     and"[:10], "", None],
         ["eleven char", "ten       " + " ", " " * 11 + "x"], "holds 10 characters, the row has 1"),
        (CHAR_10, pa.string(), ["zehn äöüß!", "ten       " + " " * 5, "", None],
         ["eleven char", " " * 11 + "x"], "holds 10 characters, the row has 1"),
        (Column("v", "text", Kind.TEXT, limits=ColumnLimits(length_max=4, length_in_bytes=True)), pa.string(),
         ["äö", "abcd", None], ["äöü", "abcde"], "holds 4 bytes"),
        (NO_NUL, pa.string(), ["", "\x01", None], ["a\0b", "\0"], "U+0000"),
        (NO_NUL, pa.large_string(), ["x", None], ["\0"], "U+0000"),
        (Column("v", "text", Kind.TEXT, limits=ColumnLimits(character_max=0x7F)), pa.string(),
         ["a", "a\x7f", "", None], ["🎈", "é", "a\x80"], "holds characters up to U+007F"),
        (Column("v", "text", Kind.TEXT, limits=ColumnLimits(character_max=0xFFFF)), pa.string(),
         ["aß", "a\nb漢\uffff", "", None], ["🎈", "a\U00010000"], "holds characters up to U+FFFF"),
        (Column("v", "jsonb", Kind.JSON, limits=ColumnLimits(escaped_nul_allowed=False)), pa.string(),
         ['"a"', r'"\\u0000"', None], [r'"\u0000"', r'"\\\u0000"'], r"cannot hold \u0000"),
        (Column("v", "json", Kind.JSON, limits=ColumnLimits(json_depth_max=2)), pa.string(),
         ['{"a": [1]}', "7", None], ["{", "[[[1]]]", ""], "holds JSON, the row has"),
        (Column("v", "double(9,2)", Kind.FLOAT, limits=ColumnLimits(scale=2)), pa.float64(), [0.25, -1e9, None], [0.125],
         "holds 2 digits after the point"),
        (Column("v", "enum", Kind.OTHER, limits=ColumnLimits(choices=("a", "b"))), pa.string(), ["a", None], ["c", ""],
         "holds one of a, b"),
        (Column("v", "varbinary(2)", Kind.BYTES, limits=ColumnLimits(length_max=2)), pa.binary(), [b"ab", None], [b"abc"],
         "holds 2 bytes"),
        (Column("v", "date", Kind.DATE, limits=ColumnLimits(DAY, DAY + 1)), pa.date32(),
         [datetime.date(2024, 1, 2), datetime.date(2024, 1, 3), None],
         [datetime.date(2024, 1, 1), datetime.date(2024, 1, 4)], "holds the days"),
        (Column("v", "timestamp", Kind.TIMESTAMP, limits=ColumnLimits(0, 5)), pa.timestamp("us"),
         [datetime.datetime(1970, 1, 1), None], [datetime.datetime(1970, 1, 1, 0, 0, 1)],  # noqa: DTZ001
         "holds the times 1970-01-01 00:00:00.000000 to 1970-01-01 00:00:00.000005 (UTC)"),
        (Column("v", "timestamp(3)", Kind.TIMESTAMP_TZ, limits=ColumnLimits(scale=3)), pa.timestamp("us", "Asia/Tokyo"),
         [AT, None], [AT.replace(microsecond=1), AT.replace(year=1900, microsecond=1001)], "holds 3 digits of"),
        (Column("v", "timestamp(0)", Kind.TIMESTAMP, limits=ColumnLimits(scale=0)), pa.timestamp("us"),
         [datetime.datetime(1969, 1, 1), None], [datetime.datetime(1969, 1, 1, 0, 0, 1, 5)],  # noqa: DTZ001
         "holds 0 digits of a second"),
        (Column("v", "time", Kind.OTHER, limits=ColumnLimits(form=Form("[0-9]{2}:[0-9]{2}", "a time of day"))), pa.string(),
         ["12:00", None], ["12:00:00", "12:00\n", ""], "holds a time of day"),
        (Column("v", "binary(2)", Kind.BYTES, limits=ColumnLimits(length_min=2, length_max=2)), pa.binary(), [b"ab", None],
         [b"a", b""], "holds no less than 2 bytes, the row has"),
        (Column("v", "smallint[]", Kind.ARRAY, element=Column("v", "smallint", Kind.INTEGER,
         limits=ColumnLimits(-(2**15), 2**15 - 1))), pa.list_(pa.int32()), [[1, None], [], None, [2**15 - 1]],
         [[1, 2**15], [-(2**31), 0]], "an element that it cannot take: it holds -32768 to 32767"),
        (Column("v", "text[]", Kind.ARRAY, element=NO_NUL), pa.list_(pa.string()), [["a", None], [], None],
         [["a", "b\0"], ["\0"]], "an element that it cannot take: it cannot hold the character "
                                 "U+0000"),
        (Column("v", "jsonb", Kind.JSON, limits=ColumnLimits(nul_allowed=False)), pa.map_(pa.string(), pa.list_(pa.string())),
         [[("a", ["b", None])], [], None, [("c", None)]], [[("a\0", None)], [("a", None), ("b", ["c", "\0"])]],
         "U+0000 in a text"),
        (Column("v", "int", Kind.INTEGER, nullable=False), pa.int32(), [1], [None], "must not be null"),
    ],
)  # fmt: skip
def test_what_a_column_holds(
    column: Column, arrow_type: Any, good: list[Any], bad: list[Any], words: str
) -> None:
    """Good values pass, bad ones are rejected with the rule named, and the two do not mix."""
    mixed = [value for pair in zip(good, bad, strict=False) for value in pair]
    mixed += good[len(bad) :] + bad[len(good) :]
    accepted, reasons = kept(column, arrow_type, mixed)
    assert accepted == [v for v in mixed if v in good]
    assert len(reasons) == len(bad)
    for reason in reasons:
        assert words in reason and "'v'" in reason and column.type in reason


def test_a_batch_that_keeps_to_all_rules_is_itself() -> None:
    """Nothing is copied where nothing is refused."""
    batch = pa.RecordBatch.from_arrays([pa.array(["a"])], names=["v"])
    accepted, rejection = TableRules((TEXT_10,), ("v",)).split(batch)
    assert accepted is batch and rejection is None


def test_reasons_name_the_key_and_every_rule() -> None:
    """A rejected row is named by its key's values; all that it breaks is said; the rows come
    back whole.
    """
    rules = TableRules(
        (
            Column("id", "integer", Kind.INTEGER),
            TEXT_10,
            Column("w", "text", Kind.TEXT, nullable=False),
        ),
        ("id", "Value", "w"),
        filled=("id",),
        named_by=("id",),
    )
    batch = pa.RecordBatch.from_pylist(
        [
            {"id": 1, "Value": "fine", "w": "x", "extra": 1},
            {"id": 2, "Value": "much too long", "w": None, "extra": 2},
            {"id": None, "Value": None, "w": "x", "extra": 3},
        ]
    )
    accepted, rejection = rules.split(batch)
    assert accepted.to_pylist() == batch.to_pylist()[:1]
    assert rejection is not None
    assert rejection.rows.to_pylist() == batch.to_pylist()[1:]
    assert rejection.reasons[0].startswith(
        "the row with id=2: column 'v' (character varying(10)) holds 10 characters, the row has "
        "13, and column 'w'"
    )
    assert "column 'w' (text) must not be null" in rejection.reasons[0]
    assert (
        rejection.reasons[1]
        == "the row with id=None: column 'id' (integer) is part of the key and must not be null"
    )


def not_utf8(values: list[bytes | None]) -> pa.Array:
    """A string array of bytes that nobody has looked at, as Spark's CAST(value AS STRING) makes
    it.
    """
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def nested_in(kind: str, texts: pa.Array) -> pa.Array:
    match kind:
        case "array":
            return pa.ListArray.from_arrays(pa.array(range(len(texts) + 1), pa.int32()), texts)
        case "struct":
            return pa.StructArray.from_arrays([pa.array(range(len(texts))), texts], ["n", "t"])
        case "map":
            offsets = pa.array(range(len(texts) + 1), pa.int32())
            return pa.MapArray.from_arrays(offsets, pa.array(["k"] * len(texts)), texts)
    return texts


@pytest.mark.parametrize("kind", ["flat", "array", "struct", "map"])
@pytest.mark.parametrize("offset", [0, 1])
def test_text_that_is_not_utf8(kind: str, offset: int) -> None:
    """Bytes that are no UTF-8 are refused at any depth, before any other rule sees them, and the
    row's key is shown.
    """
    texts = not_utf8(
        [b"skipped \xff", b"good", b"bad \xff", None, b"\xed\xa0\x80", "ü".encode(), b"long" * 9]
    )
    batch = pa.RecordBatch.from_arrays([nested_in(kind, texts), texts], names=["v", "k"])
    limits = ColumnLimits(length_max=20, trailing_spaces_free=True, nul_allowed=False)
    of_kind = Column(
        "v", "?", {"flat": Kind.TEXT, "array": Kind.ARRAY}.get(kind, Kind.JSON), limits=limits
    )
    key = Column("k", "text", Kind.TEXT)
    accepted, rejection = TableRules((of_kind, key), ("v", "k"), named_by=("k",)).split(
        batch.slice(offset)
    )
    long = kind == "flat"
    assert accepted.column("k").to_pylist() == ["good", None, "ü", *([] if long else ["long" * 9])]
    assert rejection is not None
    assert len(rejection.reasons) == rejection.rows.num_rows == 3 - offset + long
    shown = rejection.reasons[1 - offset]
    assert shown.startswith(
        "the row with k='bad \\\\xff': column 'v' (?) takes UTF-8 only, and column 'k' (text) takes"
    )


@pytest.mark.parametrize("kind", [Kind.ARRAY, Kind.JSON])
def test_elements_beside_nulls_that_hide_some(kind: Kind) -> None:
    """The row that is refused is the one whose element breaks the rule, also where a list that is
    null hides elements: a Python function can make it.
    """
    limits = ColumnLimits(nul_allowed=False)
    column = Column(
        "v", "?", kind, limits=limits, element=Column("v", "?", Kind.TEXT, limits=limits)
    )
    values = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 4, 5], pa.int32()),
        pa.array(["a", "hidden", "hidden", "b", "\0"]),
        mask=pa.array([False, True, False, False]),
    )
    accepted, rejection = TableRules((column,), ("v",)).split(
        pa.RecordBatch.from_arrays([values], names=["v"])
    )
    assert accepted.column("v").to_pylist() == [["a"], None, ["b"]]
    assert rejection is not None
    assert rejection.rows.column("v").to_pylist() == [["\0"]]


def test_keys_beyond_pythons_dates() -> None:
    """A row whose key is a day or an instant that Python has no date for is refused by name like
    any other.
    """
    days = pa.array([2**31 - 1, -(2**31), None], pa.int32()).cast(pa.date32())
    instants = pa.array([253_402_318_799_000_000, -(2**63), 0], pa.int64()).cast(
        pa.timestamp("us", "America/New_York")
    )
    batch = pa.RecordBatch.from_arrays(
        [days, instants, pa.nulls(3, pa.int32())], names=["d", "i", "v"]
    )
    columns = (
        Column("d", "date", Kind.DATE, limits=ColumnLimits(0, 5)),
        Column("i", "timestamptz", Kind.TIMESTAMP_TZ, limits=ColumnLimits(0, 5)),
        Column("v", "int", Kind.INTEGER, nullable=False),
    )
    accepted, rejection = TableRules(columns, ("d", "i", "v"), named_by=("d", "i")).split(batch)
    assert accepted.num_rows == 0 and rejection is not None
    assert [reason.split(": ")[0] for reason in rejection.reasons] == [
        "the row with d=+5881580-07-11, i=+10000-01-01 04:59:59.000000+00:00",
        "the row with d=-5877641-06-23, i=-290308-12-21 19:59:05.224192+00:00",
        "the row with d=None, i=1970-01-01 00:00:00.000000+00:00",
    ]


def test_what_json_cannot_hold() -> None:
    """Two fields of one name, and types without JSON, at any depth: no row is lost in part, and
    no worker raises.
    """
    twins = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array(["a", "b"])], ["x", "x"])
    spans = pa.array([[5], None], pa.list_(pa.duration("us")))
    for values, words in (
        (twins, "two fields of one name"),
        (nested_in("array", twins), "two"),
        (spans, "no JSON for"),
    ):
        batch = pa.RecordBatch.from_arrays([values], names=["v"])
        accepted, rejection = TableRules(
            (Column("v", "jsonb", Kind.JSON, limits=ColumnLimits(nul_allowed=False)),), ("v",)
        ).split(batch)
        assert rejection is not None and all(words in reason for reason in rejection.reasons)
        assert accepted.num_rows == values.null_count
