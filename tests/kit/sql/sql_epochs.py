"""Runs of a query over any staged sink without Spark: real coordinator, tasks played here.

A ``Query`` outlives its incarnations: the decision log's storage, and what each batch holds. An
``Incarnation`` is one driver: its participant, its coordinator and its write job.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from exactum.checkpoint.query_place import staging_at
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import Completed, PreparedTransaction, SourceOffsets, new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun, Rejection, Sink, TaskName, WriteOrder
from exactum.storage.storage import Storage
from exactum.testing import Crash, MemoryDecisionLog, MemoryStorage
from tests.kit.staged_files import waiting

_stagings = tempfile.TemporaryDirectory(prefix="exactum-staging-")
_numbers = itertools.count()

Columns = Sequence[tuple[str, str]]
Task = Sequence[pa.RecordBatch]
Rows = pa.RecordBatch | list[pa.RecordBatch]
"""Of one task, as tests give them."""

ID_AND_NAME: Columns = (("id", "bigint"), ("name", "string"))
NUMBERS: Columns = (("v", "bigint"),)
ID_AND_NAME_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows_of(batch_id: int, tasks: int = 3, rows: int = 4) -> list[list[tuple[int, str]]]:
    """The rows of a batch by task: the same whoever writes them, different in every batch, so
    that a double shows.
    """
    first = 1000 * batch_id
    return [
        [(first + 100 * t + r, f"batch {batch_id} task {t} row {r}") for r in range(rows)]
        for t in range(tasks)
    ]


def narrow(rows: Sequence[tuple[int, str]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"id": i, "name": n} for i, n in rows], schema=ID_AND_NAME_SCHEMA
    )


def numbers(*values: int | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], ["v"])


def batches_of(rows: Rows) -> Task:
    return rows if isinstance(rows, list) else [rows]


def tasks_of(batch_id: int) -> list[Task]:
    """Three tasks, each in two Arrow batches, and one without rows."""
    return [*([narrow(rows[:1]), narrow(rows[1:])] for rows in rows_of(batch_id)), []]


def expected(batches: Sequence[int], tasks: int = 3) -> list[tuple[int, str]]:
    return sorted(row for batch_id in batches for task in rows_of(batch_id, tasks) for row in task)


def new_staging() -> Path:
    """A folder that nobody else has; it goes with this process."""
    return Path(_stagings.name, str(next(_numbers)))


@dataclass
class Query:
    """``sink`` makes the sink anew for each incarnation, as a restarted program does."""

    sink: Callable[[], Sink]
    columns: Columns = ID_AND_NAME
    tasks: Callable[[int], Sequence[Task]] = tasks_of
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    query_id: str = field(default_factory=lambda: f"query-{next(_numbers)}")
    storage: MemoryStorage = field(default_factory=MemoryStorage)
    participant: str = ""  # by default the sink's own name
    staging: Path = field(default_factory=new_staging)
    runs: int = 0

    @property
    def storage_of_rows(self) -> Storage | None:
        """As a query has it that was given this folder: nothing else of it is asked."""
        return staging_at(None, self.staging)  # type: ignore[arg-type]

    def staged(self) -> list[Path]:
        """The files that wait; see ``staged_files.waiting``."""
        return waiting(self.staging)

    def start(self) -> Incarnation:
        return Incarnation(self)

    def check(self) -> None:
        """A start, and its end."""
        self.start().close()

    def run(self, *batches: int) -> list[Rejection]:
        """One driver's life of these batches. Returns what its writers reject."""
        driver = self.start()
        try:
            for batch_id in batches:
                driver.run(batch_id)
        finally:
            driver.close()
        return driver.rejections

    def die_before_commit(self, *batches: int) -> None:
        """One driver's life of these batches, of which the last one is decided and not committed."""
        driver = self.start()
        for batch_id in batches[:-1]:
            driver.run(batch_id)
        driver.die_before_commit(batches[-1])
        driver.close()

    def write(self, *tasks: Rows, batch_id: int = 0) -> list[Rejection]:
        """One driver's life of one batch of these tasks; nothing of it is left. Returns what is
        rejected.
        """
        self.tasks = lambda _: [batches_of(rows) for rows in tasks]
        try:
            return self.run(batch_id)
        finally:
            assert self.staged() == []


class Incarnation:
    """One driver, and its write job: every task opens a writer, writes, prepares; then the target
    refuses what it alone can judge.

    ``losers``: so many tasks have a speculative copy that prepares as well and loses. ``rejections``
    collects what is rejected.
    """

    def __init__(self, query: Query) -> None:
        self.query = query
        query.runs += 1
        self.run_of = QueryRun(
            query.query_id,
            new_incarnation(query.runs),
            query.guarantee,
            query.storage_of_rows,
            query.runs,
        )
        sink = query.sink()
        self.opened = sink.open(self.run_of, query.participant or sink.name, query.columns)
        self.participant = self.opened.participant
        self.log = MemoryDecisionLog(query.storage, query.query_id)
        self.losers = 0
        self.rejections: list[Rejection] = []
        self.events: list[Any] = []
        self._writing: list[Any] = []
        self.coordinator = Coordinator(
            self.run_of, [self.participant], self.log, on_event=self.events.append
        )

    def run(self, batch_id: int) -> Completed:
        return self.coordinator.run(batch_id, SourceOffsets(), self.write)

    def epoch(self, batch_id: int, *tasks: Rows) -> Completed:
        """One batch of these tasks."""
        self.query.tasks = lambda _: [batches_of(rows) for rows in tasks]
        return self.run(batch_id)

    def order(self, batch_id: int, attempt: int = 0) -> WriteOrder:
        return WriteOrder(self.run_of, batch_id, attempt, 1)

    def write(self, order: WriteOrder) -> Sequence[PreparedTransaction]:
        found: list[PreparedTransaction] = []
        for number, task in enumerate(self.query.tasks(order.batch_id)):
            if number < self.losers:
                self.task(order, TaskName(number, 1, 0), task)
            prepared = self.task(order, TaskName(number, 0, 0), task)
            found += [] if prepared is None else [prepared]
        if not found or not self.participant.judges:
            return found
        kept, rejection = self.participant.judge(found)
        self.rejections += [] if rejection is None else [rejection]
        return kept

    def task(self, order: WriteOrder, name: TaskName, batches: Task) -> PreparedTransaction | None:
        writer = self.opened.writers.open(order, name)
        self._writing.append(writer)
        try:
            for batch in batches:
                rejection = writer.write(batch)
                self.rejections += [] if rejection is None else [rejection]
            prepared = writer.prepare()
        except Exception:
            writer.abort()
            raise
        self._writing.remove(writer)
        return prepared

    def carry_out(self, batch_id: int) -> None:
        """One batch, under the query's own guarantee."""
        if self.run_of.guarantee is Guarantee.EXACTLY_ONCE:
            self.run(batch_id)
        else:
            self.participant.deliver(self.write(self.order(batch_id)))  # type: ignore[attr-defined]

    def die_before_commit(self, batch_id: int) -> None:
        """The batch is decided, and not committed."""

        def dies(*_: object) -> object:
            raise Crash("between decision and commit")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(self.participant, "commit", dies)
            with pytest.raises(Crash):
                self.run(batch_id)

    def close(self) -> None:
        """What the death of the process does too: connections end, and what was open in them is
        undone.
        """
        self.participant.close()
        for writer in self._writing:
            writer.abort()
