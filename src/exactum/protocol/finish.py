"""Finishes what is decided, and nothing else: for a process that is no driver and never becomes
one.

A driver that starts redelivers every COMMIT it finds, but only once Spark is up. Readers need not
wait for that: the record has all that is needed. This fences nobody, sweeps nothing and salvages
nothing, so it takes nothing from the driver that comes next, and may run beside one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog
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


def decided_from(log: DecisionLog, batch_id: int) -> list[DecisionRecord]:
    """The COMMITs in force from ``batch_id`` on, up to the first batch without one.

    Raises:
        ExactumError: as ``DecisionLog.read``.
    """
    records: list[DecisionRecord] = []
    for candidate in range(batch_id, batch_id + BATCHES_MAX):
        record = resolve.standing_commit(log.read(candidate))
        if record is None:
            break
        records.append(record)
    return records


def commit_decided(
    participant: Participant, records: Sequence[DecisionRecord]
) -> list[PreparedTransaction]:
    """Commit what ``records`` name of this participant, batch by batch; returns what is committed
    now. Idempotent.

    What was undone meanwhile (a timeout) is left to the next driver, which salvages it.

    Raises:
        ExactumError: as ``Participant.commit``; what was committed before stays so.
    """
    return [
        committed
        for record in records
        if (its := record.of(participant.name))
        for committed in participant.commit(CommitPermit(record), its).committed
    ]


def finished(
    records: Iterable[DecisionRecord], committed: Iterable[PreparedTransaction]
) -> list[Finished]:
    """What of each batch stands once ``committed`` does; the rest is left to the next driver."""
    done = {(p.participant, p.identity) for p in committed}
    found: list[Finished] = []
    for record in records:
        its = [p for p in record.prepared if (p.participant, p.identity) in done]
        found.append(
            Finished(record.epoch.batch_id, len(its), rows_of(its), len(record.prepared) - len(its))
        )
    return found
