"""The rules of columns on Arrow batches: how rows are named and split. (What each column holds:
tests/abuse.)
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from exactum.sql.rows import TableRules
from exactum.sql.table import Column, ColumnLimits, Kind

TEXT_10 = Column("v", "character varying(10)", Kind.TEXT, limits=ColumnLimits(length_max=10))


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


def test_an_escaped_nul_in_json() -> None:
    """The escape, and not an escaped backslash before ``u0000``."""
    texts = ['"a"', r'"\\u0000"', None, r'"\u0000"', r'"\\\u0000"']
    limits = ColumnLimits(escaped_nul_allowed=False)
    rules = TableRules((Column("v", "jsonb", Kind.JSON, limits=limits),), ("v",))
    accepted, rejection = rules.split(pa.record_batch({"v": texts}))
    assert accepted.column("v").to_pylist() == texts[:3]
    assert rejection is not None
    assert [r"cannot hold \u0000" in reason for reason in rejection.reasons] == [True, True]


def test_what_json_cannot_hold() -> None:
    """Two fields of one name, and types without JSON, at any depth: no row is lost in part, and
    no worker raises.
    """
    twins = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array(["a", "b"])], ["x", "x"])
    spans = pa.array([[5], None], pa.list_(pa.duration("us")))
    for values, words in (
        (twins, "two fields of one name"),
        (pa.ListArray.from_arrays([0, 1, 2], twins), "two"),
        (spans, "no JSON for"),
    ):
        batch = pa.RecordBatch.from_arrays([values], names=["v"])
        accepted, rejection = TableRules(
            (Column("v", "jsonb", Kind.JSON, limits=ColumnLimits(nul_allowed=False)),), ("v",)
        ).split(batch)
        assert rejection is not None and all(words in reason for reason in rejection.reasons)
        assert accepted.num_rows == values.null_count
