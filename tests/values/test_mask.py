"""Arrow's booleans as NumPy's."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from exactum.values.nested import mask_of


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 20), st.integers(0, 40))
def test_a_mask_is_what_the_column_says(values: list[bool], start: int, length: int) -> None:
    column = pa.array(values, pa.bool_()).slice(start, length)
    assert mask_of(column).tolist() == column.to_pylist()


def test_a_mask_of_missing_values() -> None:
    column = pa.array(["a", None, "", None] * 5).slice(3)
    assert mask_of(column.is_null()).tolist() == [value is None for value in column.to_pylist()]
    assert mask_of(column.is_valid()).sum() == 8
