"""What the decision records of a range of epochs promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exactum.errors import CheckpointRefused, InvariantBroken, SettingRefused
from exactum.files.slot_log import SlotLog
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import Decision, DecisionRecord, PreparedTransaction
from exactum.protocol.resolve import standing_commit


@dataclass(frozen=True)
class Promise:
    """One decided epoch: the record in force, and transactions of records that it supersedes, which
    must not be visible.
    """

    record: DecisionRecord
    superseded: tuple[PreparedTransaction, ...] = ()

    @property
    def batch_id(self) -> int:
        return self.record.epoch.batch_id

    def rows(self, participant: str) -> int:
        return sum(p.rows for p in self.record.of(participant))


@dataclass(frozen=True)
class Promises:
    """Those of a range, oldest first. ``undecided`` are batches of the range without a COMMIT;
    ``unrecorded`` are such that Spark has finished all the same, so their records are gone;
    ``forgotten_below`` is the batch below which the log has forgotten its records, where the range
    goes further back; ``not_begun`` the first batch of the range that Spark has not begun.
    """

    each: tuple[Promise, ...]
    undecided: tuple[int, ...] = ()
    unrecorded: tuple[int, ...] = ()
    forgotten_below: int | None = None
    not_begun: int | None = None

    def participants(self) -> list[str]:
        """Every sink that a record names, in the order of their first."""
        names = [p.participant for promise in self.each for p in promise.record.prepared]
        return list(dict.fromkeys(names))


def promises(
    log: DecisionLog,
    newest: int,
    first: int | None,
    last: int | None,
    *,
    finished: int | None = None,
) -> Promises:
    """What is promised from batch ``first`` to ``last``; by default of all records there are.

    ``newest`` is the last batch that Spark has begun, ``finished`` the last that it has logged as
    done.

    Raises:
        SettingRefused: the range is empty.
        Unavailable: the log did not answer.
        InvariantBroken: a record is damaged.
    """
    end = newest if last is None else min(last, newest)
    begin = 0 if first is None else first
    if begin > end:
        raise SettingRefused(
            f"There is no batch from {begin} to {end}: the query has begun batches 0 to {newest}."
        )
    found: list[Promise] = []
    undecided: list[int] = []
    forgotten: int | None = None
    adopted = _adopted_at(log)
    for batch_id in range(end, begin - 1, -1):
        try:
            records = log.read(batch_id)
        except CheckpointRefused:  # pruned
            forgotten = batch_id + 1
            break
        except InvariantBroken:
            if batch_id >= adopted:
                raise
            forgotten = batch_id + 1
            break
        standing = standing_commit(records)
        if standing is None:
            undecided.append(batch_id)
        else:
            found.append(Promise(standing, _superseded(records, standing)))
    done = -1 if finished is None else finished
    return Promises(
        tuple(reversed(found)),
        tuple(b for b in reversed(undecided) if b > done),
        tuple(b for b in reversed(undecided) if b <= done),
        forgotten,
        newest + 1 if last is not None and last > newest else None,
    )


def _adopted_at(log: DecisionLog) -> int:
    """The batch at which exactum took over a checkpoint of Spark's, whose batches before it have no
    records; 0: it has written all.

    Every start begins with an ABORT. Where the first record that there is is none, older ones are
    missing.
    """
    first = log.first_batch() if isinstance(log, SlotLog) else None
    try:
        begun = first is not None and log.read(first)[0].decision is Decision.ABORT
    except CheckpointRefused:  # pruned
        return 0
    return first if first is not None and begun else 0


def _superseded(
    records: Sequence[DecisionRecord], standing: DecisionRecord
) -> tuple[PreparedTransaction, ...]:
    named = {(p.participant, p.identity) for p in standing.prepared}
    return tuple(
        p
        for record in records
        if record.decision is Decision.COMMIT and record is not standing
        for p in record.prepared
        if (p.participant, p.identity) not in named
    )
