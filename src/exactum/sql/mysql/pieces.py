"""Large batches in pieces: Arrow's text holds 2 GiB, and a value takes twice its bytes on the way
to the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exactum.sql.checks import Broken

PIECE_BYTES = 64 * 2**20
ROW_BYTES_MAX = 2**30 - 2**21
"""No client could read more in one row either: max_allowed_packet ends at 1 GiB."""


def by_pieces(batch: Any, write: Callable[[Any], Broken | None]) -> Broken | None:
    """Write the batch piece by piece; which rows were too large, if any was, and by the first of
    them why.
    """
    if batch.nbytes <= min(PIECE_BYTES, ROW_BYTES_MAX):
        return write(batch)

    import numpy as np
    import pyarrow as pa

    from exactum.sql.checks import Broken

    rule = ""
    mask = np.zeros(batch.num_rows, bool)
    sizes = np.zeros(batch.num_rows, np.int64)
    start = 0
    for piece in _pieces(batch):
        found: Broken | None
        if piece.nbytes > ROW_BYTES_MAX:
            found = Broken(
                f"a row holds {ROW_BYTES_MAX} bytes", np.ones(1, bool), pa.array([piece.nbytes])
            )
        else:
            found = write(piece)
        if found is not None:
            rule = rule or found.rule
            mask[start : start + piece.num_rows] = found.mask
            sizes[start : start + piece.num_rows] = found.has
        start += piece.num_rows
    return Broken(rule, mask, pa.array(sizes)) if rule else None


def _pieces(batch: Any) -> Iterator[Any]:
    """Halves of halves, down to one row."""
    if batch.num_rows <= 1 or batch.nbytes <= min(PIECE_BYTES, ROW_BYTES_MAX):
        yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))
