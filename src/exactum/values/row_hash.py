"""A hash of each row of an Arrow record batch: 64 bits that depend on the row's values and on
nothing else, so that they are the same in every process and on every day.

Against chance, not against an attacker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.values.nested import as_list, is_bytes, is_text

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BITS = 64
_NULL = np.uint64(0x6E756C6C)


def row_hashes(rows: pa.RecordBatch) -> Any:
    """A NumPy array of unsigned 64-bit integers, one for each row of a record batch."""
    return _together(rows.columns, rows.num_rows)


def hashes(values: pa.Array) -> Any:
    """The same for each value of an Arrow array. The entries of a map count in any order, those of
    a list in theirs.
    """
    found = _mixed(_raw(values))
    if values.null_count:
        found[pc.is_null(values).to_numpy(zero_copy_only=False)] = _NULL
    return found


def _raw(values: pa.Array) -> Any:
    kind = values.type
    if is_text(kind) or is_bytes(kind):
        return _checksums(values.cast(pa.large_binary()).to_pylist())
    if pa.types.is_boolean(kind):
        return _integers(values.cast(pa.int8()))
    if (
        pa.types.is_primitive(kind) and kind.bit_width <= _BITS
    ):  # numbers, days and instants, as the integers of their bits
        return _integers(values.view(f"int{kind.bit_width}"))
    if pa.types.is_struct(kind):
        return _together(values.flatten(), len(values))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _of_lists(as_list(values), ordered=not pa.types.is_map(kind))
    if pa.types.is_decimal(kind):
        return _checksums(values.cast(pa.string()).cast(pa.binary()).to_pylist())
    return _checksums(None if v is None else repr(v).encode() for v in values.to_pylist())


def _checksums(values: Iterable[bytes | None]) -> Any:
    return np.array([0 if value is None else crc32(value) for value in values], np.uint64)


def _integers(values: pa.Array) -> Any:
    filled = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    return filled.astype(np.int64).view(np.uint64)


def _together(columns: Iterable[pa.Array], count: int) -> Any:
    total = np.zeros(count, np.uint64)
    for column in columns:
        total = _mixed(total * _STEP + hashes(column))
    return total


def _of_lists(values: pa.Array, *, ordered: bool) -> Any:
    """The sum of what is in each, and how many there are."""
    if not len(values):
        return np.zeros(0, np.uint64)
    ends = values.offsets.to_numpy().astype(np.int64)
    counts = np.diff(ends)
    inner = hashes(values.values.slice(int(ends[0]), int(ends[-1] - ends[0])))
    if ordered:
        place = np.arange(len(inner)) - np.repeat(ends[:-1] - ends[0], counts)
        inner = inner + (place + 1).astype(np.uint64) * _STEP
    before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(inner), dtype=np.uint64)])
    at = ends - ends[0]
    return before[at[1:]] - before[at[:-1]] + counts.astype(np.uint64)


def _mixed(numbers: Any) -> Any:
    """The last steps of splitmix64: every bit of the number changes half of those of the result."""
    mixed = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))
