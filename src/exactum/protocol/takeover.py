"""For an operator: aborts transactions that nobody decided, while a driver may live and be about to
decide them.

It is a start that runs no batch: it carries out what is decided, fences the driver that lives, and
aborts what it saw open before and no COMMIT names. So it takes the query from that driver, and a
driver that starts later fences it in turn. What is decided is committed first for a reason: a
driver that lives may be salvaging a decided epoch whose transactions expired, and its copies look
like leftovers until their record stands. Once all that a COMMIT names is committed, nobody salvages
it any more. Where something of it has expired, this refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exactum.errors import CheckpointRefused
from exactum.protocol import resolve
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.ends import NOTHING_NOTED, Noted, check_start, records_from
from exactum.protocol.model import (
    CommitPermit,
    DecisionRecord,
    PreparedTransaction,
    Sighting,
    new_incarnation,
)
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Guarantee, QueryRun


@dataclass(frozen=True)
class TakenOver:
    """``fence`` is where the ABORT was recorded; None: there was nothing to abort, and nobody was
    fenced. ``finished`` are the COMMITs that were carried out on the way.
    """

    fence: resolve.Fence | None
    aborted: tuple[Sighting, ...] = ()
    finished: tuple[DecisionRecord, ...] = ()


def abort_undecided(
    query_id: str,
    batch_id: int,
    participants: Sequence[Participant],
    log: DecisionLog,
    *,
    noted: Noted = NOTHING_NOTED,
    run: int = 0,
) -> TakenOver:
    """Abort what is open and named by no COMMIT. Idempotent; a crash anywhere leaves what
    a start settles.

    Args:
        batch_id: the first batch that Spark has not logged as done.
        participants: of all sinks of the query that can be reached.
        noted: what the checkpoint knows of the log.
        run: the number that the next run of the checkpoint has; 0: none.

    Raises:
        CheckpointRefused: a decided epoch was undone in part, names sinks that are not among
            ``participants``, or is missing from the log; or the query has gone far ahead meanwhile.
        Fenced: others take the slots without end.
        ExactumError: as the ports.
    """
    operator = QueryRun(query_id, new_incarnation(run), Guarantee.EXACTLY_ONCE, number=run)
    return _Operator(operator, participants, log, noted=noted).abort(batch_id)


class _Operator(Coordinator):
    def abort(self, batch_id: int) -> TakenOver:
        """See ``abort_undecided``."""
        self._redelivered: list[DecisionRecord] = []
        each = self._participants.each
        query_id, run = self._run.query_id, self._run.number
        earlier, _ = check_start(query_id, batch_id, self._log, each, self._noted, run=run)
        named = (*earlier, *records_from(self._log, batch_id))
        if not resolve.leftovers(self._participants.list_open(), named):
            return TakenOver(None)
        fence = self._start(batch_id)
        return TakenOver(fence, self._swept, tuple(self._redelivered))

    def _redeliver(self, record: DecisionRecord) -> DecisionRecord:
        self._redelivered.append(record)
        return super()._redeliver(record)

    def _salvage(
        self,
        permit: CommitPermit,
        expired: Sequence[tuple[Participant, tuple[PreparedTransaction, ...]]],
    ) -> DecisionRecord:
        count = sum(len(transactions) for _, transactions in expired)
        raise CheckpointRefused(
            "COMMIT_UNDONE",
            f"{permit.record.epoch} is decided, and {count} of its transactions were undone since, "
            f"in sink {expired[0][0].name!r}. Start the query: it makes them whole, or says what "
            "is missing. Nothing was fenced and nothing aborted.",
        )
