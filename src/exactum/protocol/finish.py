"""Finishes what is decided, and nothing else: for a process that is no driver and never becomes
one.

A driver that starts redelivers every COMMIT it finds, but only once Spark is up. Readers need not
wait for that: the record has all that is needed. This fences nobody, sweeps nothing and salvages
nothing, so it takes nothing from the driver that comes next, and may run beside one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exactum.errors import CheckpointRefused, InvariantBroken
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog, PermitLog
from exactum.protocol.ends import RECENT_BATCHES
from exactum.protocol.model import CommitPermit, PreparedTransaction, rows_of
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


def decided_from(log: DecisionLog, batch_id: int) -> list[CommitPermit]:
    """The COMMITs in force from ``batch_id`` on, up to the first batch without one.

    Raises:
        ExactumError: as ``DecisionLog.read``.
    """
    records = PermitLog(log)
    permits: list[CommitPermit] = []
    for candidate in range(batch_id, batch_id + BATCHES_MAX):
        record = resolve.commit_in_force(records.read(candidate))
        if record is None:
            break
        permits.append(records.permit(record))
    return permits


def decided_before(log: DecisionLog, batch_id: int) -> list[CommitPermit]:
    """The COMMITs in force of the last batches before ``batch_id``, which are over: for a target
    that has lost one of them.

    Raises:
        Unavailable: storage did not answer.
    """
    records = PermitLog(log)
    permits: list[CommitPermit] = []
    for earlier in range(max(0, batch_id - RECENT_BATCHES), batch_id):
        with contextlib.suppress(CheckpointRefused, InvariantBroken):  # pruned, or damaged
            record = resolve.commit_in_force(records.read(earlier))
            if record is not None:
                permits.append(records.permit(record))
    return permits


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
    permits: Iterable[CommitPermit], committed: Iterable[PreparedTransaction]
) -> list[Finished]:
    """What of each batch stands once ``committed`` does; the rest is left to the next driver."""
    done = {(p.participant, p.identity) for p in committed}
    found: list[Finished] = []
    for record in (permit.record for permit in permits):
        own = [p for p in record.prepared if (p.participant, p.identity) in done]
        found.append(
            Finished(record.epoch.batch_id, len(own), rows_of(own), len(record.prepared) - len(own))
        )
    return found
