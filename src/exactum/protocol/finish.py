"""Finishes what is decided, and nothing else: for a process that is no driver and never becomes
one.

A driver that starts redelivers every COMMIT it finds, but only once Spark is up. Readers need not
wait for that: the record has all that is needed. This fences nobody, sweeps nothing and salvages
nothing, so it takes nothing from the driver that comes next, and may run beside one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from exactum.errors import CheckpointRefused, InvariantBroken
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog, PermitLog
from exactum.protocol.ends import RECENT_BATCHES
from exactum.protocol.model import CommitPermit, DecisionRecord, PreparedTransaction, rows_of
from exactum.protocol.participant import Participant

BATCHES_MAX = 8
"""Batches looked at from the given one on. More than two are never unfinished unless something
is wrong.
"""


@dataclass(frozen=True)
class Finished:
    """One decided batch: what is committed now, and how many of its transactions are left to the
    next driver.
    """

    batch_id: int
    transactions: int
    rows: int
    left: int


@dataclass
class Decided:
    """What a log has of some batches, oldest first: all their records, and their COMMITs in
    force.
    """

    records: list[DecisionRecord] = field(default_factory=list)
    commits: list[CommitPermit] = field(default_factory=list)

    def read(self, log: PermitLog, batch_id: int) -> bool:
        """One more; whether it is decided. Raises as ``DecisionLog.read``."""
        records = log.read(batch_id)
        in_force = resolve.commit_in_force(records)
        self.records.extend(records)
        if in_force is not None:
            self.commits.append(log.permit(in_force))
        return in_force is not None


def decided_around(log: DecisionLog, first: int) -> tuple[Decided, Decided]:
    """Of the last batches before ``first``, which are over: a target may have lost one of them; and
    from ``first`` on, up to the first one that is not decided.

    Raises:
        ExactumError: as ``DecisionLog.read``; what lies before may be damaged.
    """
    permits, before, onwards = PermitLog(log), Decided(), Decided()
    for batch_id in range(first, first + BATCHES_MAX):  # first of all: see ``ends.check_start``
        if not onwards.read(permits, batch_id):
            break
    for batch_id in range(max(0, first - RECENT_BATCHES), first):
        # Pruned, or damaged and long done: nobody needs it.
        with contextlib.suppress(CheckpointRefused, InvariantBroken):
            before.read(permits, batch_id)
    return before, onwards


def commit_decided(
    participant: Participant, permits: Sequence[CommitPermit]
) -> list[PreparedTransaction]:
    """Commit what ``permits`` name of this participant, batch by batch; returns what is committed
    now. Idempotent.

    What was undone meanwhile (a timeout) is left to the next driver, which salvages it.

    Raises:
        ExactumError: as ``Participant.commit``; what was committed before stays so.
    """
    return [
        committed
        for permit in permits
        if (own := permit.record.of(participant.name))
        for committed in participant.commit(permit, own).committed
    ]


def finished(
    records: Iterable[DecisionRecord], committed: Iterable[PreparedTransaction]
) -> list[Finished]:
    """What of each batch stands once ``committed`` does; the rest is left to the next driver."""
    done = {(p.participant, p.identity) for p in committed}
    found: list[Finished] = []
    for record in records:
        own = [p for p in record.prepared if (p.participant, p.identity) in done]
        found.append(
            Finished(record.epoch.batch_id, len(own), rows_of(own), len(record.prepared) - len(own))
        )
    return found
