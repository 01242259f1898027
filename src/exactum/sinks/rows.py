"""Which rows of a batch a target cannot hold, and why: how every sink says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from exactum.protocol.sink import Rejection
from exactum.values.nested import Mask, numpy_mask
from exactum.values.shown import shown

Names = Callable[[pa.RecordBatch], Sequence[str]]
"""Of a record batch of refused rows: what to call each of them in its reason."""


class RowCheck:
    """Of one record batch. Rows are checked as whole arrays; only what is refused becomes Python
    objects.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._reasons: dict[int, list[str]] = {}

    def refuse(
        self,
        rows: pa.BooleanArray | Mask | None,
        why: str | Callable[[int], str],
        has: pa.Array | None = None,
        *,
        again: bool = True,
    ) -> None:
        """``rows`` is a mask, Arrow's (where null is no) or NumPy's; None: none of them. ``why``:
        of all, or of each by its number. ``has``: an array with what each row has instead, to be
        said after the reason. Without ``again`` a row that has a reason gets no other one.
        """
        mask = numpy_mask(rows) if isinstance(rows, pa.Array) else rows
        places = [] if mask is None else np.flatnonzero(mask).tolist()
        if not again:
            places = [place for place in places if place not in self._reasons]
        if not places:
            return
        found = [] if has is None else shown(has.take(pa.array(places)))
        for number, place in enumerate(places):
            text = why if isinstance(why, str) else why(place)
            ending = f", the row has {found[number]}" if found else ""
            self._reasons.setdefault(place, []).append(text + ending)

    def outcome(self, names: Names | None = None) -> tuple[pa.RecordBatch, Rejection | None]:
        """The rows without a reason (the batch itself if none has any), and the others."""
        if not self._reasons:
            return self.batch, None
        good = np.ones(self.batch.num_rows, bool)
        good[list(self._reasons)] = False
        reasons = [", and ".join(self._reasons[place]) for place in sorted(self._reasons)]
        rejection = rejected(self.batch.filter(pa.array(~good)), reasons, names)
        return self.batch.filter(pa.array(good)), rejection


def rejected(rows: pa.RecordBatch, reasons: Sequence[str], names: Names | None = None) -> Rejection:
    """These rows, each with its name before its reason."""
    named = [] if names is None else names(rows)
    if named:
        reasons = [f"{name}: {why}" for name, why in zip(named, reasons, strict=True)]
    return Rejection(rows, tuple(reasons))


def together(*rejections: Rejection | None) -> Rejection | None:
    """All of them, of one batch."""
    found = [rejection for rejection in rejections if rejection is not None]
    if len(found) <= 1:
        return found[0] if found else None
    rows = pa.Table.from_batches([one.rows for one in found]).combine_chunks().to_batches()[0]
    return Rejection(rows, tuple(reason for one in found for reason in one.reasons))
