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
from typing import Any

from exactum.errors import InvariantBroken, RowsRefused
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import (
    DEAD_LETTERS,
    Guarantee,
    QueryRun,
    Rejection,
    TaskName,
    WriteOrder,
    Writer,
    WriterFactory,
)
from exactum.spark.write.failure import TaskFailed
from exactum.spark.write.fingerprint import Fingerprint
from exactum.spark.write.prefetch import Prefetch
from exactum.spark.write.view_columns import of_view


@dataclass(frozen=True)
class DeadLetterPlan:
    """Where rows go that a sink refuses: a writer factory, and the columns it takes them in."""

    writers: WriterFactory
    columns: tuple[str, ...]


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

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        return self.on_behalf_of(order_of_task(self.run), batches)

    def on_behalf_of(self, order: WriteOrder, batches: Iterator[Any]) -> Iterator[Any]:
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
        self, batches: Iterator[Any], order: WriteOrder, task: TaskName
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
            with Prefetch(batches) as ahead:
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
                            refused.take(rejection, name, writers)
                    code = None
            code = "a sink"
            return prepare(writers), fingerprint
        except Exception as error:
            raise TaskFailed.of(error, task, abort(writers), code=code) from error
        except BaseException:  # the task is being killed
            abort(writers)
            raise

    def _of_sinks(self, batch: Any) -> list[Any]:
        """What each sink sees of the batch."""
        if self.views is None:
            return [batch] * len(self.writers)
        seen = {place: of_view(batch, place) for place in set(self.views)}
        return [seen[place] for place in self.views]


class Rejections:
    """Takes what the sinks of one task refuse: writes it to the dead letters, or stops the
    epoch.
    """

    def __init__(self, plan: DeadLetterPlan | None, order: WriteOrder, task: TaskName) -> None:
        self._plan = plan
        self._order = order
        self._task = task
        self._writer: Writer | None = None

    def take(self, rejection: Rejection, sink: str, writers: list[Writer]) -> None:
        """Write it, through a writer that is opened at need and appended to ``writers``.

        Raises:
            RowsRefused: there are no dead letters, or they refuse it too.
        """
        from exactum.spark.write.dead_letter import dead_letters

        whose = ""
        if self._plan is not None:
            if self._writer is None:
                self._writer = self._plan.writers.open(self._order, self._task)
                writers.append(self._writer)
            again = self._writer.write(dead_letters(rejection, sink, self._plan.columns))
            if again is None or not again.reasons:
                return
            rejection, whose = again, f" which {sink} refused"
        elif sink != DEAD_LETTERS:
            raise RowsRefused(
                "ROWS_REFUSED",
                f"{sink} can never take {_count(rejection)} of epoch {self._order.batch_id}: "
                f"{_first(rejection)} Nothing of the epoch is visible. Correct the rows in the "
                "query, change the table, or give dead_letters= to exactly_once() so that such "
                "rows are put aside.",
            )
        raise RowsRefused(
            "DEAD_LETTERS_REFUSED",
            f"The dead letters can never take {_count(rejection)}{whose} in epoch "
            f"{self._order.batch_id}: {_first(rejection)} Nothing of the epoch is visible. Let the "
            "dead letters' target take larger rows: of a topic, raise max.message.bytes.",
        )


RULES_SHOWN_MAX = 3
HAS = ", the row has "
"""What follows the rule in a reason: what this row has instead."""


def _count(rejection: Rejection) -> str:
    count = len(rejection.reasons)
    return "a row" if count == 1 else f"{count} rows"


def _first(rejection: Rejection) -> str:
    """One row for each rule, and how many more break it: a rule is said once."""
    rows_of: dict[str, list[int]] = {}
    for place, reason in enumerate(rejection.reasons):
        rows_of.setdefault(_rule(reason), []).append(place)
    shown = []
    for places in list(rows_of.values())[:RULES_SHOWN_MAX]:
        more = "" if len(places) == 1 else f" ({len(places) - 1} more by this rule)"
        shown.append(f"{rejection.reasons[places[0]]}{_source(rejection.rows, places[0])}{more}")
    others = sum(map(len, list(rows_of.values())[RULES_SHOWN_MAX:]))
    return f"{'; '.join(shown)}{f'; and {others} more by other rules' if others else ''}."


def _rule(reason: str) -> str:
    """The reason without what names the row and what the row has, as far as a sink says them (see
    ``sql.rules``).
    """
    return (reason.partition(": column ")[2] or reason).partition(HAS)[0]


def _source(rows: Any, place: int) -> str:
    """Where the row came from, if the frame still has the columns of Spark's Kafka source."""
    names = ("topic", "partition", "offset")
    if not all(rows.schema.names.count(name) == 1 for name in names):
        return ""
    from exactum.values.shown import shown

    topic, partition, offset = (shown(rows.column(name).slice(place, 1))[0] for name in names)
    return f" (topic {topic}, partition {partition}, offset {offset})"


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
