"""Values of users as Arrow holds them: nothing here raises, whatever the day, the instant or the
bytes. (Days and instants of any year: tests/abuse/test_sql_values.py.)
"""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from exactum.values.json_text import is_writable, json_texts
from exactum.values.nested import mask_of, not_utf8, parents_of, repaired, rows_where
from exactum.values.shown import SHOWN_MAX, shown

BAD = [b"a\xffb", None, b"ok", b"\xed\xa0\x80", "ü\0".encode()]


def unchecked(values: list[bytes | None]) -> pa.Array:
    """A string array of bytes that nobody has looked at."""
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


# ---- UTF-8 and nesting ---------------------------------------------------------------------------


def test_bytes_that_are_no_utf8() -> None:
    """They are found, and shown without a loss; good text is left as it is."""
    texts = unchecked(BAD)
    assert not_utf8(texts).tolist() == [True, False, False, True, False]
    assert not_utf8(texts.slice(1, 2)) is None
    assert repaired(texts).to_pylist() == ["a\\xffb", None, "ok", "\\xed\\xa0\\x80", "ü\0"]
    good = pa.array(["a"])
    assert repaired(good) is good
    assert not_utf8(pa.array([b"\xff"])) is None  # bytes may be anything


PIECES = st.sampled_from(["a", "ü", "€", "😀", "\0", ""]).map(str.encode) | st.sampled_from(
    [b"\xc3", b"\xbc", b"\xe2\x82", b"\xac", b"\xed\xa0\x80", b"\xff"]
)


@given(
    st.lists(st.none() | st.lists(PIECES, max_size=3).map(b"".join)),
    st.booleans(),
    st.integers(0, 3),
)
def test_utf8_is_pythons(values: list[bytes | None], wide: bool, start: int) -> None:
    """Each value counts by itself: a character that two of them share is no text in either."""

    def is_broken(value: bytes | None) -> bool:
        try:
            return value is not None and value.decode() is None
        except UnicodeDecodeError:
            return True

    raw = pa.array(values, pa.large_binary() if wide else pa.binary())
    texts = pa.Array.from_buffers(
        pa.large_string() if wide else pa.string(), len(raw), raw.buffers()
    )
    wanted = [is_broken(value) for value in values[start:]]
    found = not_utf8(texts.slice(start))
    assert (found.tolist() if found is not None else None) == (wanted if any(wanted) else None)


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 20), st.integers(0, 40))
def test_a_mask_is_what_the_column_says(values: list[bool], start: int, length: int) -> None:
    """Arrow's booleans as NumPy's, also in a slice."""
    column = pa.array(values, pa.bool_()).slice(start, length)
    assert mask_of(column).tolist() == column.to_pylist()


def test_rows_of_what_is_nested() -> None:
    """A value is traced to its row through lists, structs and maps, null ones and slices among
    them.
    """
    kind = pa.struct([("l", pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.int32()))])))])
    rows = [
        {"l": [{"m": [("7", 0)]}]},
        None,
        {"l": None},
        {"l": [None, {"m": [("a", 1), ("b", 7)]}]},
        {"l": [{"m": []}, {"m": None}, {"m": [("a", None)]}]},
    ]

    def is_seven(leaf: Any) -> Any:
        return np.asarray(pc.equal(pc.fill_null(leaf.cast(pa.string()), ""), "7"))

    values = pa.array(rows, kind)
    assert rows_where(values, is_seven).tolist() == [True, False, False, True, False]
    assert rows_where(values.slice(1), is_seven).tolist() == [False, False, True, False]
    assert rows_where(values, lambda leaf: None) is None


def test_rows_beside_nulls_that_hide_elements() -> None:
    """A list that is null may hide elements, which are no row's: a Python function can make it."""
    mask = pa.array([False, True, False, False])
    numbers = pa.array([1, 7, 7, 2, 7], pa.int32())
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4, 5], pa.int32()), numbers, mask=mask)

    def is_seven(leaf: Any) -> Any:
        return np.asarray(pc.equal(leaf, 7))

    assert lists.to_pylist() == [[1], None, [2], [7]]
    assert rows_where(lists, is_seven).tolist() == [False, False, False, True]
    assert rows_where(lists.slice(2), is_seven).tolist() == [False, True]
    assert parents_of(lists.slice(1)).tolist() == [1, 2]


def test_key_texts() -> None:
    """Each is short, and none raises."""
    assert shown(unchecked(BAD)) == [
        "'a\\\\xffb'",
        "None",
        "'ok'",
        "'\\\\xed\\\\xa0\\\\x80'",
        "'ü\\x00'",
    ]
    assert shown(
        pa.array([253_402_318_799_000_000], pa.int64()).cast(pa.timestamp("us", "Asia/Tokyo"))
    ) == ["+10000-01-01 04:59:59.000000+00:00"]
    assert shown(pa.array([Decimal("1.50"), None])) == ["1.50", "None"]
    assert shown(pa.array([math.nan, -0.0])) == ["nan", "-0"]
    assert shown(pa.array([[1, None]])) == ["[1,null]"]
    assert shown(pa.array([True])) == ["true"]
    assert shown(pa.array([5], pa.duration("us"))) == ["5"]
    assert shown(pa.array([[5]], pa.list_(pa.duration("us")))) == ["list<item: duration[us]>"]
    assert len(shown(pa.array(["x" * 1000]))[0]) == SHOWN_MAX + 3


# ---- JSON ----------------------------------------------------------------------------------------


def test_json_of_what_python_does_not_hold() -> None:
    """Instants with a zone, days of any year, bytes that are no UTF-8, odd keys."""
    kind = pa.timestamp("us", "America/New_York")
    instants = pa.array([0, 1, 253_402_318_799_000_000, -(2**63)], pa.int64()).cast(kind)
    assert json_texts(instants).to_pylist() == [
        '"1970-01-01T00:00:00.000000Z"',
        '"1970-01-01T00:00:00.000001Z"',
        '"9999-12-31T16:59:59.000000-12:00"',
        '"-290308-12-21T19:59:05.224192Z"',
    ]
    assert json_texts(unchecked(BAD)).to_pylist()[:2] == ['"a\\\\xffb"', None]
    assert json_texts(pa.array([0.1], pa.float32())).to_pylist() == ["0.1"]
    assert json_texts(pa.array([1.0, -math.inf])).to_pylist() == ["1.0", '"-Infinity"']
    money = pa.array([Decimal("12345678901234567890.12")], pa.decimal128(38, 2))
    assert json_texts(money).to_pylist() == ["12345678901234567890.12"]
    keys = pa.array([[(datetime.date(2024, 1, 1), 1)], []], pa.map_(pa.date32(), pa.int32()))
    assert json_texts(keys).to_pylist() == ['{"2024-01-01":1}', "{}"]
    numbers = pa.array([[(1, None)]], pa.map_(pa.int32(), pa.int32()))
    assert json_texts(numbers).to_pylist() == ['{"1":null}']
    deep = pa.array([[({"a": "b"}, 1)]], pa.map_(pa.struct([("a", pa.string())]), pa.int32()))
    assert [json.loads(t) for t in json_texts(deep).to_pylist()] == [{'{"a":"b"}': 1}]


DAYS = (
    0,
    1,
    -1,
    19_782,
    -141_427,
    -141_428,
    -719_162,
    -719_163,
    -800_000,
    2_932_897,
    2_145_042_905,
)
TEXTS = ("", None, "a\\b", '"', "é漢😀", "a\nb\t", "</x>", " ", "\x01", "a", "\u2028")
PLAIN = (
    "named_struct('text', text, 'day', date_from_unix_date(day), 'whole', day, "
    "'amount', CAST(day / 7 AS decimal(38, 10)), 'third', day / 3, "
    "'single', CAST(day % 1000 / 7 AS float), 'raw', CAST(text AS binary), "
    "'texts', array(text, null), 'map', map(day, CAST(day AS decimal(20, 2))), "
    "'yes', day > 0, 'nan', array(double('NaN'), double('-Infinity'), null))"
)


@pytest.mark.spark
def test_json_is_sparks(spark: SparkSession) -> None:
    """What a query has and a sink writes as JSON is what Spark's to_json makes of it, but for instants
    (docs/targets.md).
    """
    rows = spark.createDataFrame(list(zip(DAYS, TEXTS, strict=True)), "day int, text string")
    found = rows.selectExpr(f"{PLAIN} AS plain", f"to_json({PLAIN}) AS by_spark").toArrow()
    assert found.num_rows == len(DAYS)
    plain = found["plain"].combine_chunks()
    own = json_texts(plain).to_pylist()
    assert json_texts(plain.slice(3)).to_pylist() == own[3:]
    for mine, theirs in zip(own, found["by_spark"].to_pylist(), strict=True):
        read = [json.loads(text, parse_float=Decimal) for text in (mine, theirs)]
        assert read[0] == read[1]


def test_types_without_json() -> None:
    """They are known beforehand, at any depth."""
    span = pa.duration("us")
    for kind in (span, pa.list_(span), pa.struct([("a", pa.map_(pa.string(), span))])):
        assert not is_writable(kind)
    with pytest.raises(TypeError, match="duration"):
        json_texts(pa.array([1], pa.duration("us")))
