"""The hash of a row: equal for equal rows, wherever they lie, and another one for other rows."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactum.values.row_hash import hashes, row_hashes
from tests.kit.python import python

MAP = pa.map_(pa.string(), pa.int64())
DISTINCT: list[tuple[Any, list[Any]]] = [
    (pa.bool_(), [False, True, None]),
    (pa.int8(), [-1, 0, 1, 127, None]),
    (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1, None]),
    (pa.float32(), [0.0, 1.0, 1.5, float("nan"), None]),
    (pa.float64(), [0.1 + 0.2, 0.3, 0.0, float("inf"), None]),
    (pa.string(), ["", "a", "b", "ab", "null", None]),
    (pa.large_string(), ["", "a", None]),
    (pa.binary(), [b"", b"\0", b"\0\0", b"a", None]),
    (pa.date32(), [date(1970, 1, 1), date(2024, 1, 1), None]),
    (pa.timestamp("us", "UTC"), [0, 1, 2**62, None]),
    (pa.duration("us"), [timedelta(0), timedelta(1), None]),
    (pa.decimal128(20, 3), [Decimal("0.000"), Decimal("1.100"), Decimal("-1.100"), None]),
    (pa.null(), [None]),
    (pa.month_day_nano_interval(), [(1, 0, 0), (0, 1, 0), (0, 0, 1), None]),
    (pa.list_(pa.int64()), [[], [0], [0, 0], [1, 2], [2, 1], [None], None]),
    (pa.list_(pa.list_(pa.string())), [[], [[]], [["a"], []], [[], ["a"]], [["a"]], None]),
    (MAP, [[], [("a", 1)], [("a", 2)], [("b", 1)], [("a", 1), ("b", 2)], [("a", 2), ("b", 1)]]),
    (
        pa.struct([("x", pa.int64()), ("y", pa.int64())]),
        [{"x": 1, "y": None}, {"x": None, "y": 1}, {"x": 1, "y": 2}, {"x": 2, "y": 1}, None],
    ),
]


@pytest.mark.parametrize(("kind", "values"), DISTINCT, ids=lambda v: str(v)[:30])
def test_other_values_have_other_hashes(kind: Any, values: list[Any]) -> None:
    assert len(set(hashes(pa.array(values, kind)).tolist())) == len(values)


@pytest.mark.parametrize(("kind", "values"), DISTINCT, ids=lambda v: str(v)[:30])
def test_equal_values_have_equal_hashes_wherever_they_lie(kind: Any, values: list[Any]) -> None:
    whole = hashes(pa.array(values, kind)).tolist()
    alone = [hashes(pa.array([value], kind)).tolist()[0] for value in values]
    within = hashes(pa.array([*values, *values, None], kind).slice(len(values), len(values)))
    assert whole == alone == within.tolist()


def test_the_entries_of_a_map_count_in_any_order() -> None:
    one, two = hashes(pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]], MAP)).tolist()
    assert one == two


def test_a_value_counts_in_its_column() -> None:
    one = pa.record_batch({"a": [1, None, 3], "b": [2, 1, None]})
    two = pa.record_batch({"a": [2, 1, None], "b": [1, None, 3]})
    assert not set(row_hashes(one).tolist()) & set(row_hashes(two).tolist())


def test_no_rows_and_no_columns() -> None:
    empty = pa.schema([(str(n), kind) for n, (kind, _) in enumerate(DISTINCT)]).empty_table()
    (batch,) = empty.to_batches() or [pa.RecordBatch.from_pylist([], empty.schema)]
    assert row_hashes(batch).tolist() == []
    assert len(row_hashes(pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([]))))) == 2


NESTED = st.lists(
    st.none() | st.lists(st.none() | st.tuples(st.text(max_size=3), st.integers(0, 3)), max_size=3)
)


@given(NESTED, NESTED)
def test_equal_if_and_only_if_they_are_equal(one: list[Any], two: list[Any]) -> None:
    kind = pa.list_(pa.struct([("t", pa.string()), ("n", pa.int64())]))
    as_rows = [
        pa.array([v and [e and {"t": e[0], "n": e[1]} for e in v] for v in some], kind)
        for some in (one, two)
    ]
    found = dict(zip(map(repr, one), hashes(as_rows[0]).tolist(), strict=True))
    for value, hashed in zip(two, hashes(as_rows[1]).tolist(), strict=True):
        assert found.setdefault(repr(value), hashed) == hashed
    assert len(set(found.values())) == len(found)


def test_the_same_in_another_process() -> None:
    """Python's own hashes are not."""
    code = (
        "import pyarrow as pa; from exactum.values.row_hash import row_hashes; "
        "print(row_hashes(pa.record_batch({'a': ['x', None], 'b': [1.5, 2]})).tolist())"
    )
    assert python(code).stdout == python(code).stdout
