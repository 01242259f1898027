"""Aborts transactions that nobody decided, for an operator, while a driver may live and be about to
decide them.

It follows the coordinator's two rules, and is walked by the same simulation:

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
from exactum.protocol.coordinator import STARTS_CONTESTED_MAX
from exactum.protocol.decision_log import DecisionLog, PermitLog
from exactum.protocol.ends import NOTHING_NOTED, Noted, check_start
from exactum.protocol.model import (
    CommitPermit,
    Decision,
    DecisionRecord,
    Epoch,
    Sighting,
    new_incarnation,
)
from exactum.protocol.participant import Participant
from exactum.protocol.participants import Participants, one_after_another


@dataclass(frozen=True)
class TakenOver:
    """``fence`` is the ABORT that was recorded; None: there was nothing to abort, and nobody was
    fenced. ``decided`` were asked for and are named by a COMMIT, so they were left alone.
    ``finished`` are the COMMITs that were carried out on the way.
    """

    fence: DecisionRecord | None
    aborted: tuple[Sighting, ...] = ()
    decided: tuple[Sighting, ...] = ()
    finished: tuple[DecisionRecord, ...] = ()


def abort_undecided(
    query_id: str,
    batch_id: int,
    participants: Sequence[Participant],
    log: DecisionLog,
    chosen: Callable[[Sighting], bool],
    *,
    noted: Noted = NOTHING_NOTED,
) -> TakenOver:
    """Abort what is open, chosen, and named by no COMMIT. Idempotent; a crash anywhere leaves what
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
    seen, _ = check_start(query_id, batch_id, in_force, ports.each, noted)
    doomed = tuple(s for s in ports.list_open() if chosen(s))
    if not doomed:
        return TakenOver(None)
    finished: list[DecisionRecord] = []
    for _ in range(STARTS_CONTESTED_MAX):
        records = in_force.read(batch_id)
        seen.extend(records)
        step = resolve.at_start(records)
        if isinstance(step, resolve.Redeliver):
            ports.refuse_missing(step.record)
            _carry_out(ports, in_force.permit(step.record))
            finished.append(step.record)
            batch_id += 1
            continue
        left = resolve.leftovers(doomed, seen)
        decided = tuple(s for s in doomed if s not in left)
        if not left:
            return TakenOver(None, (), decided, tuple(finished))
        mine = DecisionRecord(
            Epoch(query_id, batch_id), step.attempt, Decision.ABORT, new_incarnation()
        )
        if in_force.decide(mine) != mine:
            continue
        ports.abort(batch_id, left)
        return TakenOver(mine, left, decided, tuple(finished))
    raise Fenced(
        f"Query {query_id} could not be fenced: others took the slot of batch {batch_id} "
        f"{STARTS_CONTESTED_MAX} times. Look who runs it, and stop them."
    )


def _carry_out(ports: Participants, permit: CommitPermit) -> None:
    """
    Raises:
        CheckpointRefused: something of it has expired.
    """
    undone = ports.commit(permit)
    if undone:
        count = sum(len(transactions) for _, transactions in undone)
        raise CheckpointRefused(
            "COMMIT_UNDONE",
            f"{permit.record.epoch} is decided, and {count} of its transactions were undone since, "
            f"in sink {undone[0][0].name!r}. Start the query: it makes them whole, or says what is "
            "missing. Nothing was fenced and nothing aborted.",
        )
