"""Arrow arrays by their buffers: the elements of lists, structs and maps, and the rows that they
are of; bytes and masks; and whether text is UTF-8, for Spark casts bytes to a string without a look
at them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Numbers = Any
"""An array of NumPy's, of whole numbers: not by that name, for its stubs have no buffer."""
Test = Callable[[pa.Array], Mask | None]
"""An array without nesting -> a NumPy mask of its values, or None for none."""


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def as_list(values: pa.Array) -> pa.Array:
    """A map as the list of its entries, structs of ``key`` and ``value``; a list as it is."""
    kind = values.type
    if not pa.types.is_map(kind):
        return values
    entry = pa.struct(
        [pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)]
    )
    return values.cast(pa.list_(entry))


def rows_where(values: pa.Array, test: Test) -> Mask | None:
    """Which rows hold, at any depth, a value for which ``test`` is true: a NumPy mask, or None for
    none.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        masks = [rows_where(child, test) for child in values.flatten()]
        found = [mask for mask in masks if mask is not None]
        return np.logical_or.reduce(found) if found else None
    if not pa.types.is_nested(kind):
        return test(values)
    lists = as_list(values)
    within = rows_where(lists.flatten(), test)
    if within is None:
        return None
    mask = np.zeros(len(values), bool)
    mask[parents_of(lists)[within]] = True
    return mask


def parents_of(lists: pa.Array) -> Numbers:
    """Of each element of ``lists.flatten()``, which of the lists it is in, as NumPy's numbers.

    A list that is null may hide elements, as those have that a Python function has made:
    ``flatten`` leaves them out, and Arrow's ``list_parent_indices`` counts them.
    """
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists)), counts)


def data_of(values: pa.Array) -> Numbers:
    """The bytes of all values of a text or binary array, one after another, as NumPy sees them."""
    bounds, data = bounds_of(values), values.buffers()[2]
    if data is None or len(values) == 0:
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8)[int(bounds[0]) : int(bounds[-1])]


def bytes_of(values: pa.Array) -> tuple[Numbers, Numbers]:
    """The same, and where in them each value begins and the last one ends. Null is as long as the
    array says, mostly nothing.
    """
    bounds = bounds_of(values)
    return data_of(values), bounds - bounds[0]


def bounds_of(values: pa.Array) -> np.ndarray[Any, Any]:
    """Where each value of a text or binary array begins in its buffer, and the end of the last."""
    kind = values.type
    is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    width = np.dtype(np.int64 if is_large else np.int32)
    if len(values) == 0:
        return np.zeros(1, width)
    return np.frombuffer(
        values.buffers()[1], width, len(values) + 1, values.offset * width.itemsize
    )


def hex_texts(values: pa.Array) -> pa.Array:
    """Bytes in hexadecimal, as a large_string array: one pass over all of them."""
    data, ends = bytes_of(values.cast(pa.large_binary()))
    digits = pa.py_buffer(data.tobytes().hex().encode())
    texts = pa.LargeStringArray.from_buffers(len(values), pa.py_buffer(2 * ends), digits)
    if not values.null_count:
        return texts
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.large_string()))


def numpy_mask(mask: pa.BooleanArray) -> Mask | None:
    """An Arrow mask, where null is no, as NumPy's; None when it is false everywhere."""
    if not pc.any(mask).as_py():
        return None
    return mask_of(pc.fill_null(mask, False))


def mask_of(column: pa.BooleanArray) -> Mask:
    """Arrow's booleans, none of them null, as NumPy's.

    ``to_numpy`` imports pandas where it is installed, to see whether there is a Series: 0.3 s of
    CPU and 40 MiB in each worker.
    """
    if not len(column):
        return np.zeros(0, bool)
    bits = np.frombuffer(column.buffers()[1], np.uint8)
    end = column.offset + len(column)
    return np.unpackbits(bits, count=end, bitorder="little")[column.offset :].view(bool)


# ---- UTF-8 -----------------------------------------------------------------------------------


def not_utf8(values: pa.Array) -> Mask | None:
    """Which rows hold text, at any depth, that is not UTF-8: a NumPy mask, or None for none."""
    return rows_where(values, _not_utf8)


def repaired(values: pa.Array) -> pa.Array:
    """A text array in which each byte that is no UTF-8 is shown as ``\\xff``; itself where there is
    none.
    """
    broken = _not_utf8(values)
    if broken is None:
        return values
    texts = [None if b is None else b.decode("utf-8", "backslashreplace") for b in _bytes(values)]
    return pa.array(texts, values.type)


def _not_utf8(values: pa.Array) -> Mask | None:
    if not is_text(values.type) or _all_utf8(values):
        return None
    broken = np.fromiter(
        (b is not None and not _is_utf8(b) for b in _bytes(values)), bool, len(values)
    )
    return broken if broken.any() else None


def _all_utf8(values: pa.Array) -> bool:
    """False where some value may be bad. A look at all bytes at once settles plain ASCII in a
    fraction of the time.
    """
    data = data_of(values)
    if not len(data) or data.max() < 0x80:
        return True
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _bytes(values: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = values.cast(pa.large_binary()).to_pylist()
    return found


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
