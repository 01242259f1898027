"""The executor half of the write job: one task writes its partition into every sink and prepares
it.

Workers import this module, so it imports neither pyspark nor pyarrow at module level. ``WriteTask``
is a class of an importable module and never a closure: Spark would pickle a closure by value
together with its module's globals, and the caches of sinks (producers, connections) would be lost
with every batch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from exactum.errors import InvariantBroken
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import (
    DEAD_LETTERS,
    Guarantee,
    QueryRun,
    TaskName,
    WriteOrder,
    Writer,
    WriterFactory,
)
from exactum.spark.write.dead_letter import DeadLetterPlan, Rejections
from exactum.spark.write.failure import TaskFailed
from exactum.spark.write.prefetch import prefetched

if TYPE_CHECKING:
    import pyarrow as pa

ORDER_PROPERTY = "exactum.writeOrder"
"""Spark's local property that tells the tasks of a job their order: batch id, attempt and
sequence.
"""


@dataclass(frozen=True)
class WriteTask:
    """What ``mapInArrow`` calls in each task of every write job of a run: Arrow batches in, one
    small batch of what was prepared out.

    ``writers`` are the sinks' participant names and their factories. Where the batches have the
    columns of several views side by side, ``views`` has the place of each writer's view.
    ``hashed``: the fingerprint of what the first writer sees is asked for.

    On whose behalf it writes comes with the job, so that what Spark and Python make of this object
    is made once for a run.
    """

    writers: tuple[tuple[str, WriterFactory], ...]
    run: QueryRun
    dead_letters: DeadLetterPlan | None = None
    views: tuple[int, ...] | None = None
    hashed: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.on_behalf_of(order_of_task(self.run), batches)

    def on_behalf_of(
        self, order: WriteOrder, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Write ``batches`` for ``order``, as ``__call__`` does for the job's."""
        task = current_task()
        if order.run.guarantee is Guarantee.AT_MOST_ONCE and not task.first_try:
            # The try before may have written; the input is read for the state's sake.
            for _ in batches:
                pass
            return
        prepared, fingerprint = self._write(batches, order, task)
        if prepared or fingerprint.rows:
            # From here the driver may know of them, so they are no longer this task's to abort.
            yield record_batch(prepared, fingerprint)

    def _write(
        self, batches: Iterator[pa.RecordBatch], order: WriteOrder, task: TaskName
    ) -> tuple[list[PreparedTransaction], Fingerprint]:
        """Write and prepare everything, or abort everything and raise.

        Raises:
            TaskFailed: a writer or the input failed; names the partition and carries the error.
        """
        writers: list[Writer] = []
        of_sink: dict[int, Writer] = {}
        refused = Rejections(self.dead_letters, order, task)
        fingerprint = Fingerprint()
        code = None
        try:
            with prefetched(batches) as ahead:
                for batch in ahead:
                    seen = self._of_sinks(batch)
                    if self.hashed:
                        fingerprint += Fingerprint.of(seen[0])
                    for number, rows in enumerate(seen):
                        if rows.num_rows == 0:
                            continue
                        name, factory = self.writers[number]
                        code = f"sink {name!r}"
                        if number not in of_sink:
                            of_sink[number] = factory.open(order, task)
                            writers.append(of_sink[number])
                        rejection = of_sink[number].write(rows)
                        if rejection is not None and rejection.reasons:
                            code = f"sink {DEAD_LETTERS!r}"
                            refused.take(rejection, name, writers)
                    code = None
            code = "a sink"
            return prepare(writers), fingerprint
        except Exception as error:
            raise TaskFailed.of(error, task, abort(writers), code=code) from error
        except BaseException:  # the task is being killed
            abort(writers)
            raise

    def _of_sinks(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """What each sink sees of the batch."""
        if self.views is None:
            return [batch] * len(self.writers)
        seen = {place: of_view(batch, place) for place in set(self.views)}
        return [seen[place] for place in self.views]


def prepare(writers: Sequence[Writer]) -> list[PreparedTransaction]:
    """Prepare all writers, overlapped where there are several; each waits for its own target."""
    if len(writers) <= 1:
        prepared = [writer.prepare() for writer in writers]
    else:
        with ThreadPoolExecutor(len(writers), "exactum-prepare") as pool:
            prepared = list(pool.map(lambda writer: writer.prepare(), writers))
    return [p for p in prepared if p is not None]


def abort(writers: Sequence[Writer]) -> str:
    """Abort all writers; returns what went wrong with it, as text to add to the reason. Idempotent.

    A writer that cannot be aborted here is swept by the driver, so it must not hide the reason.
    """
    trouble = ""
    for writer in writers:
        try:
            writer.abort()
        except Exception as error:  # noqa: BLE001  (reported with the reason)
            trouble += f"; its abort failed as well, and is left to the driver: {error}"
    return trouble


def order_text(order: WriteOrder) -> str:
    """What ``ORDER_PROPERTY`` says of an order; the run is known to ``WriteTask``."""
    return f"{order.batch_id} {order.attempt} {order.sequence}"


def order_of_task(run: QueryRun) -> WriteOrder:
    """The order of the job that this task belongs to.

    Raises:
        InvariantBroken: the job has none.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(ORDER_PROPERTY)
    if text is None:
        raise InvariantBroken(
            f"A task of query {run.query_id} has no order: its job lacks {ORDER_PROPERTY}."
        )
    batch_id, attempt, sequence = map(int, text.split())
    return WriteOrder(run, batch_id, attempt, sequence)


def current_task() -> TaskName:
    """The Spark task that this code runs in.

    Spark does not tell Python the stage's attempt number, so it is 0 here; ``at_most_once``, which
    rests on it, asks for a cluster that does not repeat stages.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return TaskName(0, 0, 0)
    return TaskName(context.partitionId(), context.attemptNumber(), 0)


def record_batch(
    prepared: Sequence[PreparedTransaction], fingerprint: Fingerprint | None = None
) -> Any:
    """An Arrow record batch as the write job declares it: one row with everything in it, or none.
    ``fingerprint``: of the rows that the task has read, where they are hashed.
    """
    import pyarrow as pa

    fingerprint = fingerprint or Fingerprint()
    whole = {"prepared": [astuple(one) for one in prepared], "fingerprint": astuple(fingerprint)}
    text = json.dumps(whole).encode()
    rows = 1 if prepared or fingerprint.rows else 0
    # Of its parts: pa.array() imports pandas where that is installed, 0.3 s of CPU in each worker.
    ends = struct.pack("=2i", 0, len(text))
    column = pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(text))
    return pa.RecordBatch.from_arrays([column], names=["prepared"])


def prepared_of(text: str) -> list[PreparedTransaction]:
    """What a task put into its row."""
    return [PreparedTransaction(*fields) for fields in json.loads(text)["prepared"]]


def fingerprint_of(text: str) -> Fingerprint:
    """Of the rows that the task has read; of none where they were not hashed."""
    return Fingerprint(*json.loads(text)["fingerprint"])


# ---- several views side by side in one batch -----------------------------------------------------


def named(place: int, columns: Sequence[str]) -> list[str]:
    """What the columns of the view at ``place`` are called next to those of others: no two views
    share a name.
    """
    return [f"{place}:{column}" for column in columns]


def mask(place: int) -> str:
    """The name of the boolean column that is true where the view at ``place`` has the row, if it
    leaves rows out.
    """
    return f"{place}?"


def of_view(batch: pa.RecordBatch, place: int) -> pa.RecordBatch:
    """The Arrow record batch that the view at ``place`` would give alone, of one with all views'
    columns.

    Its columns are those of ``batch``, without a copy, unless the view leaves rows out.
    """
    import pyarrow as pa

    prefix = f"{place}:"
    fields = [
        (number, field)
        for number, field in enumerate(batch.schema)
        if field.name.startswith(prefix)
    ]
    own = pa.RecordBatch.from_arrays(
        [batch.column(number) for number, _ in fields],
        schema=pa.schema([field.with_name(field.name.removeprefix(prefix)) for _, field in fields]),
    )
    has_row = batch.schema.get_field_index(mask(place))
    return own if has_row < 0 else own.filter(batch.column(has_row))


# ---- whether rows were computed once more with the same result -----------------------------------


@dataclass(frozen=True)
class Fingerprint:
    """Of some rows: how many, and the sum of their hashes, modulo 2 to the 64th. It needs no order,
    and a row that is there twice counts twice.
    """

    rows: int = 0
    sum_of_hashes: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        total = (self.sum_of_hashes + other.sum_of_hashes) % 2**64
        return Fingerprint(self.rows + other.rows, total)

    def against(self, now: Fingerprint) -> str:
        """How the rows of ``now`` are not these, which were written."""
        if self.rows == now.rows:
            return f"as many rows ({now.rows}) were written, but not the same ones"
        return f"{self.rows} rows were written, and these are {now.rows}"

    @staticmethod
    def of(rows: pa.RecordBatch) -> Fingerprint:
        """Of the rows of an Arrow record batch."""
        from exactum.values.row_hash import row_hashes

        return Fingerprint(rows.num_rows, int(row_hashes(rows).sum()))
