"""The executor half of ``decode``: record batches in, the same with decoded columns and what was
bad out.

Workers import this module, so it imports neither pyspark nor pyarrow at module level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exactum.errors import RowsRefused
from exactum.formats.format import Reader, decoded
from exactum.formats.registry import with_ids
from exactum.spark.write.failure import TaskFailed
from exactum.spark.write.write_task import current_task

if TYPE_CHECKING:
    import pyarrow as pa

BAD = "__exactum_bad"
"""The column that is null for a good record, and for a bad one holds the reason, its key and its
value.
"""


def null_reason(column: str) -> str:
    """Why a null in this column makes a record bad."""
    if column == "timestamp":  # of the source, where Spark can hold no value of the record's
        return f"{column}: Spark cannot hold it; it should be milliseconds since 1970"
    return f"{column}: it is null"


@dataclass(frozen=True)
class Decoding:
    """How one column is decoded: ``reader`` as of a ``Bound``, ``kind`` is the result's Arrow type.

    ``id_header``: the header that may have the id of a record's schema, or nothing.
    """

    column: str
    reader: Callable[[], Reader]
    kind: Any
    id_header: str = ""


@dataclass(frozen=True)
class DecodeTask:
    """What ``mapInArrow`` calls in each task.

    ``fail`` raises at the first bad record instead of marking it; a null makes one in the columns
    ``nulls_are_bad``.
    """

    decodings: tuple[Decoding, ...]
    fail: bool
    nulls_are_bad: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = current_task()
        at_hand: Any = None
        try:
            readers = [one.reader() for one in self.decodings]
            for batch in batches:
                at_hand = batch
                found = self._decoded(batch, readers)
                at_hand = None
                yield found
        except GeneratorExit:  # Spark needs no more of it
            raise
        except Exception as error:
            code = None if at_hand is None else f"a decoder, on {_records(at_hand)},"
            raise TaskFailed.of(error, task, code=code) from error

    def _decoded(self, batch: pa.RecordBatch, readers: Sequence[Reader]) -> pa.RecordBatch:
        import pyarrow as pa

        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        reasons: dict[int, str] = {}
        for one, read in zip(self.decodings, readers, strict=True):
            data = batch.column(one.column)
            if one.id_header:
                data = with_ids(data, batch.column("headers"), one.id_header)
            columns[one.column], found = decoded(data, one.kind, read)
            for row, reason in found.items():
                reasons[row] = (
                    f"{reasons[row]}; {one.column}: {reason}"
                    if row in reasons
                    else f"{one.column}: {reason}"
                )
        for name in self.nulls_are_bad:
            self._add_nulls(batch, name, reasons)
        if reasons and self.fail:
            raise RowsRefused("RECORD_BAD", refusal(batch, reasons))
        columns[BAD] = _bad(batch, reasons)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _add_nulls(self, batch: pa.RecordBatch, name: str, reasons: dict[int, str]) -> None:
        column = batch.column(name)
        if column.null_count:
            for row, there in enumerate(column.is_valid().to_pylist()):
                if not there:
                    reasons[row] = "; ".join(filter(None, (reasons.get(row), null_reason(name))))


def _records(batch: pa.RecordBatch) -> str:
    """Where the records of a batch stand: those of a task are of one partition, in order, or of a
    few.
    """
    if not batch.num_rows:
        return "no records"
    topics, partitions, offsets = (batch.column(name) for name in ("topic", "partition", "offset"))
    first, last = (
        f"{topics[at].as_py()}-{partitions[at].as_py()}@{offsets[at].as_py()}" for at in (0, -1)
    )
    return f"the records from {first} to {last}"


def refusal(batch: pa.RecordBatch, reasons: dict[int, str]) -> str:
    """What ``RowsRefused`` says: where the first bad record of a batch is, why it is bad, and what
    can be done.
    """
    row = min(reasons)
    topic, partition, offset = (
        batch.column(name)[row].as_py() for name in ("topic", "partition", "offset")
    )
    more = f" ({len(reasons) - 1} more after it)" if len(reasons) > 1 else ""
    return refusal_of(f"{topic}-{partition} at offset {offset}", reasons[row] + more)


def refusal_of(where: str, reason: str) -> str:
    return (
        f"The record of {where} cannot be decoded: {reason}. Nothing of its epoch is visible. "
        "Decode it otherwise, or let exactum.decode() put such records aside: "
        "on_error='dead_letter' (or 'skip')."
    )


def _bad(batch: pa.RecordBatch, reasons: dict[int, str]) -> pa.Array:
    """The column ``BAD``: null for all rows but those with a reason."""
    import pyarrow as pa

    kind = pa.struct([("error", pa.string()), ("key", pa.binary()), ("value", pa.binary())])
    if not reasons:
        return pa.nulls(batch.num_rows, kind)
    rows: list[dict[str, Any] | None] = [None] * batch.num_rows
    for row, reason in reasons.items():
        key, value = (batch.column(name)[row].as_py() for name in ("key", "value"))
        rows[row] = {"error": reason, "key": key, "value": value}
    return pa.array(rows, kind)
