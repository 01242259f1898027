"""A sink opened for one run of a query, without Spark: tasks are played here, and each step of its
driver is one call. Of whole runs, with the real coordinator: ``tests.kit.sql.sql_epochs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import pyarrow as pa

from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Decision,
    DecisionRecord,
    Epoch,
    PreparedTransaction,
    new_incarnation,
)
from exactum.protocol.sink import Guarantee, QueryRun, Rejection, Sink, TaskName, WriteOrder
from exactum.storage.storage import Storage
from exactum.testing.memory import permit_of

QUERY = "5f1c9a3e-9f10-4c5e-8d5a-1f1de6c0b7aa"


class OpenedSink:
    """``name``: of its participant; by default the sink's own. Each batch is a task of its own.
    ``rejections`` collects what writers reject; ``committed`` is what the log has.
    """

    def __init__(
        self,
        sink: Sink,
        columns: Sequence[tuple[str, str]] = (),
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        *,
        query_id: str = QUERY,
        name: str = "",
        staging: Storage | None = None,
        committed: Sequence[PreparedTransaction] = (),
    ) -> None:
        self.run = QueryRun(query_id, new_incarnation(), guarantee, staging)
        if columns:
            sink.check_columns(columns)
        run = replace(self.run, committed=lambda: committed)
        self.opened = sink.open(run, name or sink.name, columns)
        self.participant: Any = self.opened.participant
        self.rejections: list[Rejection] = []

    def __enter__(self) -> OpenedSink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.participant.close()

    def order(self, batch_id: int = 0, attempt: int = 0) -> WriteOrder:
        return WriteOrder(self.run, batch_id, attempt, batch_id + 1)

    def writer(self, batch_id: int = 0, task: int = 0) -> Any:
        return self.opened.writers.open(self.order(batch_id), TaskName(task, 0, 0))

    def prepare(self, *batches: pa.RecordBatch, batch_id: int = 0) -> list[PreparedTransaction]:
        prepared = []
        for task, batch in enumerate(batches):
            writer = self.writer(batch_id, task)
            rejection = writer.write(batch)
            self.rejections += [rejection] if rejection is not None else []
            prepared.append(writer.prepare())
        return [one for one in prepared if one is not None]

    def permit(self, prepared: Sequence[PreparedTransaction], batch_id: int = 0) -> CommitPermit:
        """Of a record of these transactions, whether they are there or not."""
        epoch = Epoch(self.run.query_id, batch_id)
        record = DecisionRecord(epoch, 0, Decision.COMMIT, self.run.incarnation, tuple(prepared))
        return permit_of(record)

    def decide(self, *batches: pa.RecordBatch, batch_id: int = 0) -> CommitPermit:
        """Prepared, verified and recorded."""
        prepared = self.participant.verify(self.prepare(*batches, batch_id=batch_id))
        return self.permit(prepared, batch_id)

    def commit(self, permit: CommitPermit) -> CommitReport:
        """What is decided, whoever has decided it."""
        report: CommitReport = self.participant.commit(permit, permit.record.prepared)
        return report

    def write(self, *batches: pa.RecordBatch, batch_id: int = 0) -> CommitPermit:
        """A whole epoch."""
        permit = self.decide(*batches, batch_id=batch_id)
        assert self.commit(permit).committed == permit.record.prepared
        return permit

    def sweep(self) -> None:
        """Abort all that is open."""
        self.participant.abort(self.participant.list_open())
