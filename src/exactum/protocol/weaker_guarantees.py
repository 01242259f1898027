"""At least once: what is written is visible at once, and no decision about it is recorded. Spark
repeats a batch that it has not logged as done.

At most once: a batch that was begun is never written again, so a crash loses rows and doubles none.
The same decision log, used the other way round: the record is created *before* the write, and names
no transactions. So ``engine`` is asked before the write, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from exactum import events
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import (
    Completed,
    Decision,
    DecisionRecord,
    Epoch,
    SourceOffsets,
    rows_of,
)
from exactum.protocol.participants import timed
from exactum.protocol.sink import Write, WriteOrder


class NoLog:
    """For a query that was given no decision log, and whose checkpoint cannot hold one: nothing was
    decided of it, or a start by this one is refused.
    """

    def log_id(self) -> None:
        """None: it holds nothing."""

    def read(self, batch_id: int) -> Sequence[DecisionRecord]:
        """See the port."""
        return ()

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        """See the port. Nobody else sees the record."""
        return record

    def prune(self, below_batch_id: int) -> int:
        """See the port."""
        return 0

    def close(self) -> None:
        """Nothing to let go of."""


class AtLeastOnce(Coordinator):
    """Writes a batch that is not decided, whether or not it was written before."""

    def prune(self, below_batch_id: int) -> None:
        """Nothing: the last records are those of a run that decided, and tell a log that is whole
        from an empty one.
        """

    def _attempt(
        self, batch_id: int, attempt: int, offsets: SourceOffsets, write: Write
    ) -> Completed:
        order = self._next_order(batch_id, attempt)
        self._ready(order)
        self._begin(order, offsets)
        with timed(self._phase_ms, "write"):
            prepared = tuple(write(order))
        with timed(self._phase_ms, "commit"):
            self._participants.deliver(prepared)
        rows = rows_of(prepared)
        self._emit(
            events.EpochCompleted(
                *self._name(batch_id), attempt, len(prepared), rows, dict(self._phase_ms)
            )
        )
        return Completed(written=True, rows=rows)

    def _begin(self, order: WriteOrder, offsets: SourceOffsets) -> None:
        """The first row is about to be written."""


class AtMostOnce(AtLeastOnce):
    """Writes each batch at most once over all incarnations."""

    prune = Coordinator.prune

    def _begin(self, order: WriteOrder, offsets: SourceOffsets) -> None:
        mine = DecisionRecord(
            Epoch(self._run.query_id, order.batch_id),
            order.attempt,
            Decision.COMMIT,
            self._run.incarnation,
            offsets=offsets,
            engine=self._engine(),
        )
        in_force = self._log.decide(mine)
        if in_force != mine:
            raise self._fenced(in_force)

    def _redeliver(self, record: DecisionRecord) -> DecisionRecord:
        if record.prepared:
            return super()._redeliver(record)
        self._emit(
            events.EpochAbandoned(
                *self._name(record.epoch.batch_id),
                record.attempt,
                f"it was begun by incarnation {record.incarnation}, and at most once means that it "
                "is not written again: whatever that run did not write is lost",
            )
        )
        return record
