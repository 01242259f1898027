"""Finishes what is decided, and nothing else: for a process that is no driver and never becomes one.

A driver that starts redelivers every COMMIT it finds, but only once Spark is up. Readers need not wait for that: the
record has all that is needed. This closes no door, sweeps nothing and salvages nothing, so it takes nothing from the
driver that comes next, and may run beside one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import CommitPermit, rows_of
from exactum.protocol.participant import Participant

BATCHES_MAX = 8
"""Batches looked at from the given one on. More than two are never unfinished unless something is wrong."""


@dataclass(frozen=True)
class Finished:
    """One decided batch: what is committed now, and how many of its transactions are left to the next driver."""

    batch_id: int
    transactions: int
    rows: int
    left: int


def finish_decided(participants: Sequence[Participant], log: DecisionLog, batch_id: int) -> list[Finished]:
    """Commit what stands on record from ``batch_id`` on, up to the first batch without a COMMIT. Idempotent.

    Left to the next driver are transactions that were undone meanwhile (it salvages them) and those of sinks that are
    not among ``participants``.

    Raises:
        ExactumError: as ``DecisionLog.read`` and ``Participant.commit``; what was committed before stays so.
    """
    finished: list[Finished] = []
    for candidate in range(batch_id, batch_id + BATCHES_MAX):
        record = resolve.standing_commit(log.read(candidate))
        if record is None:
            break
        permit = CommitPermit(record)
        committed = [
            p
            for participant in participants
            if (its := record.of(participant.name))
            for p in participant.commit(permit, its).committed
        ]
        left = len(record.prepared) - len(committed)
        finished.append(Finished(candidate, len(committed), rows_of(committed), left))
    return finished
