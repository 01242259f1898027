"""Frames of a staged file that are Arrow's own format: where a row that the server refuses has to
be found again as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def packed(batch: Any) -> Any:
    """A frame of one record batch."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


def unpacked(frame: Any) -> Any:
    """The record batch of a frame."""
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(frame)) as stream:
        return stream.read_next_batch()


def without(frame: Any, places: Sequence[int]) -> memoryview:
    """The frame without the rows at these places."""
    import numpy as np
    import pyarrow as pa

    batch = unpacked(frame)
    kept = np.ones(batch.num_rows, bool)
    kept[list(places)] = False
    return memoryview(packed(batch.filter(pa.array(kept))))
