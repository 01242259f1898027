"""Where Arrow holds the values of a column, so that C can read them without a Python object for
each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from exactum.errors import FrameRefused
from exactum.values.nested import mask_of

Array = np.ndarray[Any, Any]
"""Of NumPy, of whatever shape and type."""
_EMPTY = np.zeros(8, dtype=np.uint8)


def pointers(column: pa.Array) -> tuple[Array, Array]:
    """Address and length of each value; address 0 for null. Valid as long as ``column`` lives."""
    data_buffer = column.buffers()[2] if len(column) else None
    offsets = _offsets(column).astype(np.uint64)
    # An empty value must not have address 0: that is how librdkafka knows a null.
    base = (
        data_buffer.address if data_buffer is not None and data_buffer.size else _EMPTY.ctypes.data
    )
    addresses = offsets[:-1] + np.uint64(base)
    sizes = offsets[1:] - offsets[:-1]
    if column.null_count:
        valid = mask_of(column.is_valid())
        addresses = np.where(valid, addresses, np.uint64(0))
        sizes = np.where(valid, sizes, np.uint64(0))
    return addresses, sizes


def lengths(column: pa.Array) -> Array:
    """Bytes of each value; 0 for null."""
    found = np.diff(_offsets(column)).astype(np.int64)
    if column.null_count:
        found[mask_of(column.is_null())] = 0
    return found


def _offsets(column: pa.Array) -> Array:
    """Where each value begins, and the end of the last.

    Raises:
        FrameRefused: it is not text or bytes in a form whose memory is known here.
    """
    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        kind: Any = np.int64
    elif pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        kind = np.int32
    else:
        raise FrameRefused(
            "KAFKA_COLUMNS",
            f"Kafka's columns are text or bytes, and Spark handed over {column.type}.",
        )
    if not len(column):
        return np.zeros(1, dtype=kind)
    return np.frombuffer(column.buffers()[1], dtype=kind)[
        column.offset : column.offset + len(column) + 1
    ]
