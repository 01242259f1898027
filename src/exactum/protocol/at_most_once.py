"""At most once: a batch that was begun is never written again, so a crash loses rows and doubles
none.

The same decision log, used the other way round: the record is created *before* the write, and names
no transactions. Whoever did not create it does not write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from exactum import events
from exactum.errors import CheckpointRefused
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.epoch_protocol import Completed, EpochProtocol
from exactum.protocol.model import Decision, DecisionRecord, Epoch, SourceOffsets, rows_of
from exactum.protocol.participant import Participant
from exactum.protocol.sink import QueryRun, Write, WriteOrder


class AtMostOnce(EpochProtocol):
    """Runs the batches of one incarnation, in order, each at most once over all incarnations."""

    def __init__(
        self,
        run: QueryRun,
        log: DecisionLog,
        *,
        participants: Sequence[Participant] = (),
        on_event: events.Listener = lambda event: None,
        clock_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._run = run
        self._log = log
        self._participants = tuple(participants)
        self._emit = on_event
        self._clock_s = clock_s
        self._sequence = 0

    def run(self, batch_id: int, offsets: SourceOffsets, write: Write) -> Completed:
        """Write the batch unless it was begun before, by whomever. Idempotent over crashes.

        Raises:
            CheckpointRefused: the batch is on record with other source offsets, or was decided
                under exactly-once and may still have transactions to finish.
            OutcomeUnknown: nobody knows whether the record stands; nothing was written, and if it
                does stand the batch never will be.
        """
        epoch = Epoch(self._run.query_id, batch_id)
        records = self._log.read(batch_id)
        begun = resolve.standing_commit(records)
        if begun is not None:
            _refuse_unfinished(begun)
            resolve.refuse_other_offsets(begun, offsets)
            return self._skipped(begun)
        mine = DecisionRecord(
            epoch, len(records), Decision.COMMIT, self._run.incarnation, offsets=offsets
        )
        stands = self._log.decide(mine)
        if stands != mine:
            return self._skipped(stands)
        self._sequence += 1
        began_s = self._clock_s()
        prepared = tuple(write(WriteOrder(self._run, batch_id, mine.attempt, self._sequence)))
        took_ms = (self._clock_s() - began_s) * 1000
        rows = rows_of(prepared)
        self._emit(
            events.EpochCompleted(
                *self._name(batch_id), mine.attempt, len(prepared), rows, {"write": took_ms}
            )
        )
        return Completed(written=True, rows=rows)

    def prune(self, below_batch_id: int) -> None:
        """See the base class."""
        self._log.prune(below_batch_id)

    def close(self) -> None:
        """See the base class."""
        for participant in self._participants:
            participant.close()
        self._log.close()

    def _skipped(self, record: DecisionRecord) -> Completed:
        """The batch was begun by somebody else: it is theirs, finished or lost."""
        self._emit(
            events.EpochAbandoned(
                *self._name(record.epoch.batch_id),
                record.attempt,
                f"it was begun by incarnation {record.incarnation}, and at most once means that it "
                "is not written again: whatever that run did not write is lost",
            )
        )
        return Completed(written=False, rows=0)

    def _name(self, batch_id: int) -> tuple[str, int, str]:
        return self._run.query_id, batch_id, self._run.incarnation


def _refuse_unfinished(record: DecisionRecord) -> None:
    if record.prepared:
        raise CheckpointRefused(
            f"{record.epoch} was decided under exactly-once with {len(record.prepared)} "
            "transactions, which may still have to be committed. Start the query once more with "
            "exactly_once and its sinks, let it finish this batch, then change to at_most_once. "
            "Nothing was written."
        )
