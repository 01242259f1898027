"""Arrow's booleans as NumPy's, without pandas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def mask_of(column: pa.BooleanArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The values of a column without nulls.

    ``to_numpy`` imports pandas where it is installed, to see whether there is a Series: 0.3 s of
    CPU and 40 MiB in each worker.
    """
    if not len(column):
        return np.zeros(0, bool)
    bits = np.frombuffer(column.buffers()[1], np.uint8)
    end = column.offset + len(column)
    return np.unpackbits(bits, count=end, bitorder="little")[column.offset :].view(bool)
