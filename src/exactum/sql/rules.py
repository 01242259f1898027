"""The rows of a frame against the columns of a table, by whole Arrow batches before a row is sent:
for every dialect.

A server that refuses one row refuses the whole load, and says so late or not which row. What can be
known from the column's type is found here (``checks``); what only the server knows (CHECK, foreign
keys) it says itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.protocol.sink import Rejection
from exactum.sql.checks import Broken, Further, certain, no_further, of_kind
from exactum.sql.table import Column
from exactum.values.shown import shown
from exactum.values.utf8 import not_utf8


def together(one: Rejection | None, other: Rejection) -> Rejection:
    """Both, of one batch."""
    if one is None:
        return other
    rows = pa.Table.from_batches([one.rows, other.rows]).combine_chunks().to_batches()[0]
    return Rejection(rows, one.reasons + other.reasons)


@dataclass(frozen=True)
class TableRules:
    """What the rows of a frame must keep to. Picklable.

    columns: the target's column for each of the names in ``frame_columns``.
    filled: those of the target's names that may not be null whatever the table says (the key of an
    upsert). named_by: the frame's columns whose values name a row in a reason; may be empty.
    further: the dialect's own rules.
    """

    columns: tuple[Column, ...]
    frame_columns: tuple[str, ...]
    filled: tuple[str, ...] = ()
    named_by: tuple[str, ...] = ()
    further: Further = no_further

    def split(self, batch: Any) -> tuple[Any, Rejection | None]:
        """The rows that keep to all rules (``batch`` itself if all do), and the others with the
        reasons.

        No value of a user becomes a Python value on the way but those that a reason shows, by
        ``shown``.
        """
        found = [
            (column, broken)
            for column, name in zip(self.columns, self.frame_columns, strict=True)
            for broken in self._broken(column, batch.column(name))
        ]
        if not found:
            return batch, None
        bad = np.zeros(batch.num_rows, bool)
        reasons: dict[int, list[str]] = {}
        for column, broken in found:
            mask = np.asarray(broken.mask)
            bad |= mask
            places = np.flatnonzero(mask)
            rule = f"column {column.name!r} ({column.type}) {broken.rule}"
            has = (
                [""] * len(places)
                if broken.has is None
                else shown(broken.has.take(pa.array(places)))
            )
            for place, value in zip(places.tolist(), has, strict=True):
                reasons.setdefault(place, []).append(
                    f"{rule}, the row has {value}" if value else rule
                )
        rows = batch.filter(pa.array(bad))
        names = self._names(rows)
        texts = tuple(
            f"{names[i]}{', and '.join(reasons[place])}" for i, place in enumerate(sorted(reasons))
        )
        return batch.filter(pa.array(~bad)), Rejection(rows, texts)

    def apart(self, batch: Any, broken: Broken) -> Rejection:
        """The rows that break a rule which is not one of a column; ``broken.rule`` is a sentence of
        its own.
        """
        rows = batch.filter(pa.array(np.asarray(broken.mask)))
        has = (
            [""] * rows.num_rows
            if broken.has is None
            else shown(broken.has.filter(pa.array(broken.mask)))
        )
        names = self._names(rows)
        details = [f"{broken.rule}, the row has {value}" if value else broken.rule for value in has]
        if broken.details is not None:
            details = [f"{broken.rule}: {text}" for text in broken.details]
        return Rejection(
            rows, tuple(f"{name}{rule}" for name, rule in zip(names, details, strict=True))
        )

    def _names(self, rows: Any) -> list[str]:
        """How each rejected row is called."""
        if not self.named_by:
            return [""] * rows.num_rows
        values = [shown(rows.column(name)) for name in self.named_by]
        return [
            "the row with "
            + ", ".join(f"{n}={v}" for n, v in zip(self.named_by, row, strict=True))
            + ": "
            for row in zip(*values, strict=True)
        ]

    def _broken(self, column: Column, values: Any) -> Iterator[Broken]:
        """Each rule that some value breaks. UTF-8 comes first: no other rule, and no server, sees
        what is none.
        """
        if values.null_count and (not column.nullable or column.name in self.filled):
            why = (
                "must not be null"
                if not column.nullable
                else "is part of the key and must not be null"
            )
            yield Broken(why, pc.is_null(values))
        spoiled = not_utf8(values)
        if spoiled is not None:
            yield Broken("takes UTF-8 only", spoiled)
            values = values.take(pa.array(np.arange(len(values)), mask=spoiled))
        yield from certain(of_kind(column, values))
        yield from certain(self.further(column, values))
