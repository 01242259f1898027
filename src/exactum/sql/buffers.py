"""The bytes in Arrow's arrays of text and bytes, without a copy for each value. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def bytes_of(values: Any) -> tuple[bytes, Any]:
    """The bytes of all values of a string or binary array, one after another, and the offsets in
    them (numpy).

    There is one offset more than values. Null is as long as the array says, mostly nothing.
    """
    _, offset_buffer, data = values.buffers()
    width = (
        np.int64
        if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
        else np.int32
    )
    if len(values) == 0:
        return b"", np.zeros(1, width)
    size = np.dtype(width).itemsize
    offsets = np.frombuffer(offset_buffer, width, len(values) + 1, values.offset * size)
    start, end = int(offsets[0]), int(offsets[-1])
    whole = b"" if data is None else memoryview(data)[start:end].tobytes()
    return whole, offsets - start
