"""Epochs without Spark: the real coordinator, file log and Kafka sink, started again as a
supervisor would.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pyarrow as pa

from exactum import events
from exactum.errors import Disposition, ExactumError
from exactum.files.slot_log import SlotLog
from exactum.kafka.sink import KafkaSink
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    DecisionRecord,
    PreparedTransaction,
    Sighting,
    SourceOffsets,
    new_incarnation,
)
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Guarantee, OpenSink, QueryRun, TaskName, WriteOrder
from exactum.storage.folder import Folder

TASKS = 4
ROWS_OF_A_TASK = 400
STARTS_OF_AN_EPOCH_MAX = 4

Between = Callable[[str, Sequence[PreparedTransaction]], AbstractContextManager[None]]
"""Told the step that comes next and what is prepared; the step runs within what it returns."""


def nothing_between(
    step: str, prepared: Sequence[PreparedTransaction]
) -> AbstractContextManager[None]:
    return nullcontext()


class Watched:
    """The sink's participant and the decision log, with ``between`` called before each of their
    steps.
    """

    def __init__(self, participant: Participant, log: SlotLog, between: Between) -> None:
        self._participant = participant
        self._log = log
        self._between = between
        self.name = participant.name
        self.list_open = participant.list_open
        self.salvage = participant.salvage
        self.read = log.read
        self.prune = log.prune

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        with self._between("verify", prepared):
            return self._participant.verify(prepared)

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        with self._between("decide", record.prepared):
            return self._log.decide(record)

    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        with self._between("commit", prepared):
            report = self._participant.commit(permit, prepared)
        with self._between("committed", prepared):
            return report

    def abort(self, transactions: Sequence[Sighting]) -> None:
        self._participant.abort(transactions)

    def close(self) -> None:
        self._participant.close()
        self._log.close()


class SupervisedQuery:
    """Runs epochs of numbered rows, and starts anew after every error that says one may."""

    def __init__(
        self, sink: KafkaSink, query_id: str, folder: Path, between: Between = nothing_between
    ) -> None:
        self.expected: set[str] = set()
        self.starts = 0
        self.reasons: list[str] = []
        self.phases: list[dict[str, int]] = []
        self._sink = sink
        self._query_id = query_id
        self._folder = folder
        self._between = between
        self._opened: OpenSink | None = None
        self._coordinator: Coordinator | None = None
        self._batch_id = -1

    def __enter__(self) -> SupervisedQuery:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def epoch(self) -> float:
        """Bring the next epoch through; returns how many seconds it took, starts included."""
        self._batch_id += 1
        began_s = time.monotonic()
        for _ in range(STARTS_OF_AN_EPOCH_MAX):
            try:
                offsets = SourceOffsets(end=(str(self._batch_id),))
                self._running().run(self._batch_id, offsets, self._write)
            except ExactumError as error:
                if error.disposition not in (Disposition.RETRY, Disposition.ABORT):
                    raise
                self.reasons.append(f"epoch {self._batch_id}: {type(error).__name__}: {error}")
                self._close()
                continue
            for task in range(TASKS):
                self.expected.update(self._values(task))
            return time.monotonic() - began_s
        raise AssertionError(
            f"no start brought epoch {self._batch_id} through:\n" + "\n".join(self.reasons)
        )

    def _listen(self, event: events.Event) -> None:
        if isinstance(event, events.EpochCompleted):
            self.phases.append({name: round(ms) for name, ms in event.phase_ms.items()})

    def _values(self, task: int) -> list[str]:
        return [f"{self._query_id}-{self._batch_id}-{task}-{row}" for row in range(ROWS_OF_A_TASK)]

    def _running(self) -> Coordinator:
        if self._coordinator is None:
            run = QueryRun(self._query_id, new_incarnation(), Guarantee.EXACTLY_ONCE)
            self._opened = self._sink.open(run, self._sink.name)
            log = SlotLog(Folder(self._folder), self._query_id)
            watched = Watched(self._opened.participant, log, self._between)
            self._coordinator = Coordinator(run, [watched], watched, on_event=self._listen)
            self.starts += 1
        return self._coordinator

    def _write(self, order: WriteOrder) -> list[PreparedTransaction]:
        assert self._opened is not None
        half = ROWS_OF_A_TASK // 2
        writers = [self._opened.writers.open(order, TaskName(task, 0, 0)) for task in range(TASKS)]
        try:
            for task, writer in enumerate(writers):
                writer.write(frame(self._values(task)[:half]))
            with self._between("write", ()):
                for task, writer in enumerate(writers):
                    writer.write(frame(self._values(task)[half:]))
            return [p for p in (writer.prepare() for writer in writers) if p is not None]
        except Exception:
            for writer in writers:
                writer.abort()
            raise

    def _close(self) -> None:
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            coordinator.close()


def frame(values: Sequence[str]) -> pa.RecordBatch:
    """Rows with the values, and keys that spread them over all partitions."""
    return pa.record_batch(
        {"key": pa.array(values, pa.string()), "value": pa.array(values, pa.string())}
    )
