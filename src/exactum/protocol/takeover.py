"""Taking a query over: what every start does with the log; and for an operator, who aborts
transactions that nobody decided, while a driver may live and be about to decide them.

That abort follows the coordinator's two rules, and is walked by the same simulation:

1. *List before the record, abort after it.* What is aborted was seen open before a record of our
   own was created, and no COMMIT names it.
2. *Fencing.* That record is an ABORT in the next free slot of the batch at which the query stands.
   A living driver must pass that slot, and is fenced: so this takes the query from it. A driver
   that starts later finds the slot taken and goes on in the one after it.

What is decided on the way is committed first, as every start does. This is no courtesy: a driver
that lives may be salvaging a decided epoch whose transactions expired, and its copies look like
leftovers until their record stands. Once all that a COMMIT names is committed, nobody salvages it
any more. Where something of it has expired, this refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from exactum.errors import CheckpointRefused, Fenced
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog, PermitLog
from exactum.protocol.ends import NOTHING_NOTED, Noted, check_start
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    Epoch,
    Incarnation,
    Sighting,
    new_incarnation,
)
from exactum.protocol.participant import Participant
from exactum.protocol.participants import Participants, one_after_another

STARTS_CONTESTED_MAX = 1_000
"""How often a start may lose a slot to others before it gives up."""


def fenced_from(
    begins: Epoch,
    log: PermitLog,
    incarnation: Incarnation,
    carry_out: Callable[[DecisionRecord], DecisionRecord],
    is_wanted: Callable[[Sequence[DecisionRecord]], bool] = lambda seen: True,
) -> list[DecisionRecord]:
    """Carry every COMMIT from ``begins`` on out, then create an ABORT in the next free slot, unless
    that is not wanted in view of what was seen. Returns all records on the way, the ABORT last.

    Raises:
        Fenced: others take the slots without end.
        ExactumError: as ``DecisionLog`` and ``carry_out``.
    """
    epoch, seen = begins, list[DecisionRecord]()
    for _ in range(STARTS_CONTESTED_MAX):
        seen.extend(records := log.read(epoch.batch_id))
        step = resolve.at_start(records)
        if isinstance(step, resolve.Redeliver):
            seen.append(carry_out(step.record))
            epoch = Epoch(epoch.query_id, epoch.batch_id + 1)
        elif not is_wanted(seen):
            return seen
        else:
            mine = DecisionRecord(epoch, step.attempt, Decision.ABORT, incarnation)
            if log.decide(mine) == mine:
                return [*seen, mine]
    raise Fenced(
        f"{epoch}: others took the next slot {STARTS_CONTESTED_MAX} times, so this run could not "
        "take the query over. Run it in one place only."
    )


@dataclass(frozen=True)
class TakenOver:
    """``fence`` is the ABORT that was recorded; None: there was nothing to abort, and nobody was
    fenced. ``finished`` are the COMMITs that were carried out on the way.
    """

    fence: DecisionRecord | None
    aborted: tuple[Sighting, ...] = ()
    finished: tuple[DecisionRecord, ...] = ()


def abort_undecided(
    query_id: str,
    batch_id: int,
    participants: Sequence[Participant],
    log: DecisionLog,
    *,
    noted: Noted = NOTHING_NOTED,
) -> TakenOver:
    """Abort what is open and named by no COMMIT. Idempotent; a crash anywhere leaves what
    a start settles.

    Args:
        batch_id: the first batch that Spark has not logged as done.
        participants: of all sinks of the query that can be reached.
        noted: what the checkpoint knows of the log.

    Raises:
        CheckpointRefused: a decided epoch was undone in part, names sinks that are not among
            ``participants``, or is missing from the log; or the query has gone far ahead meanwhile.
        Fenced: others take the slots without end.
        ExactumError: as the ports.
    """
    in_force = PermitLog(log)
    ports = Participants(participants, (), one_after_another, lambda *_: None)
    earlier, _ = check_start(query_id, batch_id, in_force, ports.each, noted)
    doomed = tuple(ports.list_open())
    if not doomed:
        return TakenOver(None)
    finished: list[DecisionRecord] = []

    def carry_out(record: DecisionRecord) -> DecisionRecord:
        ports.refuse_missing(record)
        if undone := ports.commit(in_force.permit(record)):
            count = sum(len(transactions) for _, transactions in undone)
            raise CheckpointRefused(
                "COMMIT_UNDONE",
                f"{record.epoch} is decided, and {count} of its transactions were undone since, in "
                f"sink {undone[0][0].name!r}. Start the query: it makes them whole, or says what "
                "is missing. Nothing was fenced and nothing aborted.",
            )
        finished.append(record)
        return record

    def left(seen: Sequence[DecisionRecord]) -> tuple[Sighting, ...]:
        return resolve.leftovers(doomed, (*earlier, *seen))

    begins = Epoch(query_id, batch_id)
    seen = fenced_from(begins, in_force, new_incarnation(), carry_out, lambda s: bool(left(s)))
    aborted = left(seen)
    if aborted:
        ports.abort(seen[-1].epoch.batch_id, aborted)
    return TakenOver(seen[-1] if aborted else None, aborted, tuple(finished))
