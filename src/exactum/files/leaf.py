"""The scalars of an Arrow column, at any depth, and in which row each of them is: for checks of
whole columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from exactum.values.nested import as_list, parents_of

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Leaf:
    """Scalar values of one column. ``lists``: the arrays of lists that they are in, outermost
    first.

    ``place`` says in words which part of the column they are.
    """

    values: pa.Array
    place: str = ""
    lists: tuple[pa.Array, ...] = ()

    def rows(self, found: Numbers) -> Numbers:
        """The rows of the values with these numbers."""
        for lists in reversed(self.lists):
            found = parents_of(lists)[found]
        return found


def leaves(values: pa.Array, place: str = "", lists: tuple[pa.Array, ...] = ()) -> Iterator[Leaf]:
    """Every part of a column that is scalar. What a null struct, list or map hides is not among
    it.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        for field, child in zip(kind, values.flatten(), strict=True):
            yield from leaves(child, f"{place}.{field.name}" if place else field.name, lists)
    elif pa.types.is_map(kind):
        listed = as_list(values)
        keys, items = listed.flatten().flatten()
        yield from leaves(keys, f"{place} (a key)", (*lists, listed))
        yield from leaves(items, f"{place} (a value)", (*lists, listed))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from leaves(values.flatten(), f"{place} (an element)", (*lists, values))
    else:
        yield Leaf(values, place.strip(), lists)
