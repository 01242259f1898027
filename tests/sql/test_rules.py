"""The rules of columns on Arrow batches: what is refused, with which words, and what is let through."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from exactum.sql.rules import Rules
from exactum.sql.table import Column, Kind, Limits

TEXT_10 = Column("v", "character varying(10)", Kind.TEXT, limits=Limits(length_max=10, trailing_spaces_free=True))
NO_NUL = Column("v", "text", Kind.TEXT, limits=Limits(nul_allowed=False))
DAY = (datetime.date(2024, 1, 2) - datetime.date(1970, 1, 1)).days


def kept(column: Column, arrow_type: Any, values: list[Any]) -> tuple[list[Any], tuple[str, ...]]:
    """The values that the column takes, and the reasons for the others."""
    batch = pa.RecordBatch.from_arrays([pa.array(values, arrow_type)], names=["v"])
    # With an offset, as in a slice of a larger batch.
    twice = pa.Table.from_batches([batch.slice(0, 1), batch]).combine_chunks().to_batches()[0]
    accepted, rejection = Rules((column,), ("v",)).split(twice.slice(1))
    return accepted.column(0).to_pylist(), () if rejection is None else rejection.reasons


@pytest.mark.parametrize(
    ("column", "arrow_type", "good", "bad", "words"),
    [
        (Column("v", "smallint", Kind.INTEGER, limits=Limits(-(2**15), 2**15 - 1)), pa.int64(),
         [-(2**15), 2**15 - 1, None], [-(2**15) - 1, 2**15, 2**63 - 1], "holds -32768 to 32767"),
        (Column("v", "bigint unsigned", Kind.INTEGER, limits=Limits(0, 2**64 - 1)), pa.int64(),
         [0, 2**63 - 1, None], [-1], "holds 0 to"),
        (Column("v", "numeric(5,2)", Kind.DECIMAL, limits=Limits(precision=5, scale=2)), pa.decimal128(10, 4),
         [Decimal("999.9949"), Decimal("-999.9949"), None], [Decimal("999.9950"), Decimal("-1000")],
         "holds 3 digits before the point"),
        (Column("v", "numeric(5,2)", Kind.DECIMAL, limits=Limits(precision=5, scale=2)), pa.int64(),
         [999, -999, None], [1000, -1000, -(2**63)], "holds 3 digits before the point"),
        (Column("v", "numeric(38,0)", Kind.DECIMAL, limits=Limits(precision=38, scale=0)), pa.decimal128(38, 0),
         [Decimal("9" * 38), None], [], ""),
        (Column("v", "numeric", Kind.DECIMAL), pa.decimal128(38, 2), [Decimal("9" * 36), None], [], ""),
        (Column("v", "float", Kind.FLOAT, limits=Limits(nan_allowed=False)), pa.float64(),
         [1.0, -1e308, None], [math.nan, math.inf, -math.inf], "cannot hold NaN"),
        (Column("v", "float", Kind.FLOAT, limits=Limits(magnitude_max=10.0)), pa.float64(),
         [10.0, math.inf, None], [10.1, -11.0], "holds values up to 10"),
        (TEXT_10, pa.string(), ["zehn äöüß!", "short     and"[:10], "ten       " + " " * 5, "", None],
         ["eleven char", " " * 11 + "x"], "holds 10 characters"),
        (Column("v", "text", Kind.TEXT, limits=Limits(length_max=4, length_in_bytes=True)), pa.string(),
         ["äö", "abcd", None], ["äöü", "abcde"], "holds 4 bytes"),
        (NO_NUL, pa.string(), ["", "\x01", None], ["a\0b", "\0"], "U+0000"),
        (NO_NUL, pa.large_string(), ["x", None], ["\0"], "U+0000"),
        (Column("v", "text", Kind.TEXT, limits=Limits(code_point_max=0xFFFF)), pa.string(),
         ["世界", "a\nb", None], ["🎈"], "U+FFFF"),
        (Column("v", "enum", Kind.OTHER, limits=Limits(choices=("a", "b"))), pa.string(), ["a", None], ["c", ""],
         "holds one of a, b"),
        (Column("v", "varbinary(2)", Kind.BYTES, limits=Limits(length_max=2)), pa.binary(), [b"ab", None], [b"abc"],
         "holds 2 bytes"),
        (Column("v", "date", Kind.DATE, limits=Limits(DAY, DAY + 1)), pa.date32(),
         [datetime.date(2024, 1, 2), datetime.date(2024, 1, 3), None],
         [datetime.date(2024, 1, 1), datetime.date(2024, 1, 4)], "holds the days"),
        (Column("v", "timestamp", Kind.TIMESTAMP, limits=Limits(0, 5)), pa.timestamp("us"),
         [datetime.datetime(1970, 1, 1), None], [datetime.datetime(1970, 1, 1, 0, 0, 1)],  # noqa: DTZ001
         "holds the microseconds"),
        (Column("v", "int", Kind.INTEGER, nullable=False), pa.int32(), [1], [None], "must not be null"),
    ],
)  # fmt: skip
def test_what_a_column_holds(column: Column, arrow_type: Any, good: list[Any], bad: list[Any], words: str) -> None:
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
    accepted, rejection = Rules((TEXT_10,), ("v",)).split(batch)
    assert accepted is batch and rejection is None


def test_reasons_name_the_key_and_every_rule() -> None:
    """A rejected row is named by its key's values; all that it breaks is said; the rows come back whole."""
    rules = Rules(
        (Column("id", "integer", Kind.INTEGER), TEXT_10, Column("w", "text", Kind.TEXT, nullable=False)),
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
    assert rejection.reasons[0].startswith("the row with id=2: column 'v' (character varying(10)) holds 10 characters")
    assert "column 'w' (text) must not be null" in rejection.reasons[0]
    assert rejection.reasons[1] == "the row with id=None: column 'id' (integer) is part of the key and must not be null"
