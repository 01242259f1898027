"""The one reader of a query's decision log: a batch, what is not finished, or what a range
promises. Who writes into it, a coordinator or an operator's command, opens it for itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from exactum.checkpoint.query_place import QueryPlace
from exactum.errors import CheckpointRefused, InvariantBroken, SettingRefused
from exactum.files.slot_log import SlotLog
from exactum.protocol.decision_log import DecisionLog, PermitLog
from exactum.protocol.ends import recent, unknown_commits
from exactum.protocol.finish import Decided, decided_around
from exactum.protocol.inspection import Promise
from exactum.protocol.model import Decision, DecisionRecord, PreparedTransaction, Sighting
from exactum.protocol.participant import Participant
from exactum.protocol.resolve import commit_in_force

R = TypeVar("R")


def read_batch(place: QueryPlace, batch_id: int) -> tuple[DecisionRecord, ...]:
    """What the log has of one micro-batch.

    Raises:
        ExactumError, OSError: it cannot be read.
    """
    with closing(place.open_log()) as log:
        return tuple(log.read(batch_id))


def read_around(place: QueryPlace, first: int) -> tuple[Decided, Decided]:
    """Before ``first`` and from it on, as ``decided_around``. It is the first batch that Spark has
    not logged as done.

    Raises:
        ExactumError: it cannot be read.
    """
    with closing(place.open_log()) as log:
        return decided_around(log, first)


def read_unknown(place: QueryPlace, begins: int, participant: Participant) -> tuple[Sighting, ...]:
    """What its target has committed near batch ``begins`` and no record names, as a start asks that
    goes on with it.

    Raises:
        ExactumError: the log cannot be read, or the target cannot be asked.
    """
    record = place.record()

    def each(function: Callable[[Participant], R], /) -> list[R]:
        return [function(participant)]

    with closing(place.open_log()) as opened:
        log = PermitLog(opened)
        earlier = recent(log, begins, record.noted)
        return unknown_commits(begins, log, each, earlier, record.noted, run=record.runs + 1)


# ---- promises --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Promises:
    """Those of a range, oldest first. ``undecided`` are batches of the range without a COMMIT;
    ``unrecorded`` are such that Spark has finished all the same: their records are gone, or they
    ran without a decision; ``forgotten_below`` is the batch below which the log has forgotten its
    records, where the range goes further back; ``not_begun`` the first batch of the range that
    Spark has not begun.
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


@dataclass(frozen=True)
class SparkProgress:
    """How far Spark is, by its own logs. ``newest`` is the last batch that it has begun,
    ``finished`` the last that it has logged as done; of those below ``kept`` it keeps nothing.
    """

    newest: int
    finished: int = -1
    kept: int = 0


def read_promises(place: QueryPlace, first: int | None, last: int | None) -> Promises:
    """As they are on record now.

    Raises:
        CheckpointRefused: a record is damaged, or missing where there must be one.
        ExactumError: as ``promises``; or the query has begun no batch.
    """
    finished = place.finished()
    newest = place.planned(finished)
    if newest is None:
        raise SettingRefused(
            "COMMAND_ARGUMENT",
            f"{place} has not begun any micro-batch: nothing is promised yet.",
        )
    with closing(place.open_log()) as log:
        progress = SparkProgress(newest, -1 if finished is None else finished, place.kept())
        try:
            return promises(log, progress, first, last)
        except InvariantBroken as error:
            raise CheckpointRefused("DECISION_LOG_DAMAGED", str(error)) from error


def promises(
    log: DecisionLog,
    progress: SparkProgress,
    first: int | None,
    last: int | None,
) -> Promises:
    """What is promised from batch ``first`` to ``last``; by default of all records there are.

    Raises:
        SettingRefused: the range is empty.
        Unavailable: the log did not answer.
        InvariantBroken: a record is damaged, or missing where there must be one.
    """
    newest = progress.newest
    end = newest if last is None else min(last, newest)
    begin = 0 if first is None else first
    if begin > end:
        raise SettingRefused(
            "COMMAND_ARGUMENT",
            f"There is no batch from {begin} to {end}: the query has begun batches 0 to {newest}.",
        )
    found: list[Promise] = []
    undecided: list[int] = []
    without: list[int] = []
    forgotten: int | None = None
    lowest = _lowest(log)
    above = _next_records(log, end, newest)
    for batch_id in range(end, begin - 1, -1):
        try:
            records = _read(log, batch_id, above)
        except CheckpointRefused:  # pruned
            forgotten = batch_id + 1
            break
        if not records and batch_id < max(lowest, progress.kept):
            forgotten = batch_id + 1
            break
        in_force = commit_in_force(records)
        if in_force is not None:
            found.append(Promise(in_force, _superseded(records, in_force)))
        else:
            (without if batch_id <= progress.finished else undecided).append(batch_id)
        above = records or above
    if _is_begin(above) and min(without, default=end) < above[0].epoch.batch_id <= end:
        forgotten = above[0].epoch.batch_id  # exactum took over there
    return Promises(
        tuple(reversed(found)),
        tuple(reversed(undecided)),
        tuple(b for b in reversed(without) if forgotten is None or b >= forgotten),
        forgotten,
        newest + 1 if last is not None and last > newest else None,
    )


def _read(
    log: DecisionLog, batch_id: int, above: Sequence[DecisionRecord]
) -> Sequence[DecisionRecord]:
    """The records of a batch; none where a start passed it over: something else had written it, as
    ``at_least_once`` does, or Spark's own sink. Then those of the next batch that has some, which
    are ``above``, begin with the ABORT of that start.

    Raises:
        ExactumError: as ``DecisionLog.read``.
    """
    try:
        return log.read(batch_id)
    except InvariantBroken:
        is_damaged = isinstance(log, SlotLog) and log.has_records(batch_id)
        if is_damaged or not _is_begin(above):
            raise
        return ()


def _next_records(log: DecisionLog, end: int, newest: int) -> Sequence[DecisionRecord]:
    """Those of the first batch behind ``end`` that has some; none where there is none. A start, and
    'exactum accept', write into a batch that Spark has not begun yet.
    """
    for batch_id in range(end + 1, newest + 2):
        with contextlib.suppress(CheckpointRefused, InvariantBroken):
            if records := log.read(batch_id):
                return records
    return ()


def _is_begin(records: Sequence[DecisionRecord]) -> bool:
    """Whether they begin as every run does."""
    return bool(records) and records[0].decision is Decision.ABORT


def _lowest(log: DecisionLog) -> int:
    """The batch below which there can be no record, as far as the log can tell cheaply: where
    exactum took over a checkpoint of Spark's, for one.
    """
    first = log.first_batch() if isinstance(log, SlotLog) else None
    return -1 if first is None else first


def _superseded(
    records: Sequence[DecisionRecord], in_force: DecisionRecord
) -> tuple[PreparedTransaction, ...]:
    named = {(p.participant, p.identity) for p in in_force.prepared}
    return tuple(
        p
        for record in records
        if record.decision is Decision.COMMIT and record is not in_force
        for p in record.prepared
        if (p.participant, p.identity) not in named
    )
