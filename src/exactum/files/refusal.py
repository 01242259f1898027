"""Which rows cannot stand in a sink's files so that every reader finds them as they were.

All of it is known from the rows alone, before anything is decided: a file that is published can be
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.errors import FrameRefused
from exactum.files.leaf import Leaf, Numbers, leaves
from exactum.files.partition import Partitioning
from exactum.files.texts import instant_text, out_of_years
from exactum.protocol.sink import Rejection
from exactum.values.nested import is_text
from exactum.values.times import day_text
from exactum.values.utf8 import not_utf8

SHOWN_BYTES_MAX = 40
"""Bytes of a bad text that a reason shows."""


class Refusal:
    """Tells the rows that files of one format hold from those that they do not. Used by one
    task.
    """

    def __init__(
        self, format_name: str, partitioning: Partitioning, partition_by: Sequence[str]
    ) -> None:
        self._format = format_name
        self._partitioning = partitioning
        self._partition_by = frozenset(partition_by)
        self._schema: pa.Schema | None = None

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Rejection | None]:
        """The rows that can be written (``batch`` itself if all can), and the others with the
        reasons.

        Raises:
            FrameRefused: as ``check_schema``.
        """
        if batch.schema is not self._schema and batch.schema != self._schema:
            self.check_schema(batch.schema)
            self._schema = batch.schema
        reasons: dict[int, list[str]] = {}
        for number, name in enumerate(batch.schema.names):
            for row, reason in self._of_column(name, batch.column(number)):
                reasons.setdefault(row, []).append(reason)
        for row, reason in self.of_rows(batch):
            reasons.setdefault(row, []).append(reason)
        # Only of rows whose texts are texts.
        kept = (
            np.asarray([n for n in range(batch.num_rows) if n not in reasons]) if reasons else None
        )
        rest = batch if kept is None else batch.take(pa.array(kept, pa.int64()))
        for row, reason in self._partitioning.refused(rest).items():
            reasons[row if kept is None else int(kept[row])] = [reason]
        if not reasons:
            return batch, None
        bad = np.zeros(batch.num_rows, bool)
        bad[list(reasons)] = True
        rejected = Rejection(
            batch.filter(pa.array(bad)), tuple("; ".join(reasons[n]) for n in sorted(reasons))
        )
        return batch.filter(pa.array(~bad)), rejected

    def check_schema(self, schema: pa.Schema) -> None:
        """
        Raises:
            FrameRefused: two fields of a struct have one name.
        """
        check_fields(schema)

    def of_rows(self, batch: pa.RecordBatch) -> Iterator[tuple[int, str]]:
        """Number and reason of rows for what their single values do not say."""
        if self._format == "csv" and batch.num_columns - len(self._partition_by) == 1:
            yield from self._of_lone_column(batch)

    def _of_column(self, name: str, column: pa.Array) -> Iterator[tuple[int, str]]:
        in_files = name not in self._partition_by
        for leaf in leaves(column):
            kind = leaf.values.type
            if is_text(kind):
                broken = not_utf8(leaf.values)  # Spark's cast from binary does not look
                if broken is not None:
                    yield from _explained(name, leaf, np.flatnonzero(broken), "is no text in UTF-8")
                if in_files and self._format == "csv":
                    lone = pc.equal(leaf.values, pa.scalar("\0", kind))
                    if pc.any(lone).as_py():
                        rows = np.flatnonzero(
                            pc.fill_null(lone, False).to_numpy(zero_copy_only=False)
                        )
                        yield from _explained(
                            name, leaf, rows, "is U+0000 alone, which Spark reads as null"
                        )
            elif (
                in_files
                and self._format != "parquet"
                and (pa.types.is_date(kind) or pa.types.is_timestamp(kind))
            ):
                why = (
                    f"is outside the years 1 to 9999, for which readers of {self._format} have no "
                    "text"
                )
                yield from _explained(name, leaf, out_of_years(leaf.values), why)

    def _of_lone_column(self, batch: pa.RecordBatch) -> Iterator[tuple[int, str]]:
        (name,) = (n for n in batch.schema.names if n not in self._partition_by)
        column = batch.column(batch.schema.get_field_index(name))
        for row in pc.indices_nonzero(column.is_null()).to_pylist() if column.null_count else ():
            yield (
                row,
                f"column {name!r} is null, and readers of CSV skip the empty line of a file with "
                "one column",
            )


def check_fields(schema: pa.Schema) -> None:
    """Structs whose fields readers cannot tell apart.

    Raises:
        FrameRefused: two fields of a struct differ in case only, or not at all.
    """
    for column in schema:
        waiting = [column.type]
        while waiting:
            kind = waiting.pop()
            fields = [kind.field(n) for n in range(kind.num_fields)]
            waiting.extend(f.type for f in fields)
            names = [f.name.lower() for f in fields]
            twice = sorted({n for n in names if names.count(n) > 1})
            if twice and pa.types.is_struct(kind):
                raise FrameRefused(
                    "FILES_COLUMNS",
                    f"The column {column.name!r} holds structs with two fields {twice[0]!r} that "
                    "differ in case only, or not at all, and readers like Spark take them for "
                    "one. Rename one of them. Nothing of the epoch is visible.",
                )


def _explained(name: str, leaf: Leaf, found: Numbers, why: str) -> Iterator[tuple[int, str]]:
    if not len(found):
        return
    where = f"column {name!r}" + (f" at {leaf.place}" if leaf.place else "")
    shown = leaf.values.take(pa.array(found))
    reported: set[int] = set()
    for row, value in zip(leaf.rows(found).tolist(), _shown(shown), strict=True):
        if row not in reported:
            reported.add(row)
            yield row, f"{where} {why}, the row has {value}"


def _shown(values: pa.Array) -> list[str]:
    kind = values.type
    if pa.types.is_date(kind):
        return [day_text(v) for v in values.view(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(kind):
        zone = " UTC" if kind.tz is not None else ""
        return [instant_text(v) + zone for v in values.view(pa.int64()).to_pylist()]
    whole = values.view(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
    return [
        repr(v[:SHOWN_BYTES_MAX]) + ("..." if len(v) > SHOWN_BYTES_MAX else "")
        for v in whole.to_pylist()
    ]
