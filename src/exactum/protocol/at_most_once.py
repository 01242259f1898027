"""At most once: a batch that was begun is never written again, so a crash loses rows and doubles
none.

The same decision log, used the other way round: the record is created *before* the write, and names
no transactions. So ``engine`` is asked before the write, too.
"""

from __future__ import annotations

from exactum import events
from exactum.protocol.at_least_once import AtLeastOnce
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import Decision, DecisionRecord, Epoch, SourceOffsets
from exactum.protocol.sink import WriteOrder


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
        stands = self._log.decide(mine)
        if stands != mine:
            raise self._fenced(stands)

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
