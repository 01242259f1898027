"""How a query is by its checkpoint alone, whether its driver lives or not: its history, and what
Spark's logs and the decision log add to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from exactum.checkpoint import offset_log
from exactum.checkpoint.layout import DECISIONS
from exactum.checkpoint.partition_offsets import from_json
from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.run_file import RecordedRun, runs
from exactum.errors import ExactumError
from exactum.files.slot_log import slot_name
from exactum.monitor.history_stats import stats_of_history
from exactum.monitor.query_stats import InDoubt, QueryStats
from exactum.monitor.verdict import Judgement, Verdict, verdict_of
from exactum.monitor.window import AtHand
from exactum.protocol.model import DecisionRecord, rows_of
from exactum.protocol.resolve import commit_in_force
from exactum.protocol.sink import Guarantee

T = TypeVar("T")

EPOCHS_LOOKED_AT = 8
"""Past micro-batches whose offsets are read, to know how large the one at hand is beside them."""


@dataclass(frozen=True)
class CheckpointState:
    """One moment. ``planned`` is the batch that Spark has begun last, ``finished`` the one that it
    has logged as done; ``decided`` is ``planned`` where a COMMIT of it is on record. ``living`` are
    the runs whose driver lives. ``completed_ms``: when a batch was completed last, 0: none.

    ``is_known``: there is something to judge by, a history or a run that left a file. ``troubles``
    are sentences: what could not be read, and why.
    """

    stats: QueryStats
    living: tuple[RecordedRun, ...]
    has_run: bool
    planned: int | None
    finished: int | None
    decided: int | None
    completed_ms: int
    troubles: tuple[str, ...]
    undecided_why: str = ""
    """Why it is not known whether ``planned`` is decided; empty: the decisions were read."""

    @property
    def is_known(self) -> bool:
        return self.stats.observed_ms is not None or self.has_run

    @property
    def has_begun(self) -> bool:
        """The run that lives has completed a batch, or has found nothing to read."""
        began_ms = max((run.started_ms for run in self.living), default=0)
        return self.stats.window.is_waiting or self.completed_ms >= began_ms

    @property
    def completed(self) -> int | None:
        """The last batch that is known to stand in every sink."""
        known = (self.finished, self.stats.epoch, self.stats.window.finished)
        return max((each for each in known if each is not None), default=None)

    def judged(self, now_ms: int) -> Judgement:
        """How the query is. Where a file system has no locks, its facts say whether it lives."""
        found = verdict_of(self.stats, now_ms, bool(self.living) if self.has_run else None)
        if not self.undecided_why or self.planned == self.completed:
            return found
        if self.living or found.verdict is not Verdict.DOWN:
            return found
        # What cannot be read here may not be readable at a start either.
        return Judgement(
            found.verdict,
            f"{found.reason} Whether micro-batch {self.planned} is decided is not known.",
            f"First see to this: {self.undecided_why}",
        )


def state_of(place: QueryPlace, now_ms: int, followed: QueryStats | None = None) -> CheckpointState:
    """What the checkpoint says now. What cannot be read is a trouble.

    ``followed``: what somebody knows who follows the query's history; None: it is read. It is not
    changed.
    """
    troubles: list[str] = []

    def attempt(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (OSError, ExactumError, ValueError) as error:
            troubles.append(str(error))
            return None

    # Before the history is read: what is over by then is not at hand.
    known = attempt(lambda: runs(place.folder)) or []
    alive = tuple(run for run, lives in known if lives)
    planned, finished = attempt(place.planned), attempt(place.finished)
    observed = followed or attempt(lambda: stats_of_history(place.folder, place.query_id, now_ms))
    stats = QueryStats(place.query_id) if observed is None else replace(observed)
    commit, undecided_why = None, ""
    if planned is not None and stats.guarantee in (None, Guarantee.EXACTLY_ONCE.value):
        known_troubles = len(troubles)
        commit = attempt(lambda: commit_in_force(_records(place, planned)))
        undecided_why = "".join(troubles[known_troubles:])
    logged_ms = attempt(lambda: _logged_ms(place, finished)) or 0
    if stats.window.observed_ms is not None:
        # A history may fall silent while the query goes on: a full disk, a folder not its own.
        observed_ms = max(stats.window.observed_ms, logged_ms)
        stats.window = replace(stats.window, observed_ms=observed_ms)
    if planned is not None and (finished is None or planned > finished):
        attempt(lambda: _add_open(stats, place, planned, commit, alive))
    decided = None if commit is None else planned
    return CheckpointState(
        stats,
        alive,
        bool(known),
        planned,
        finished,
        decided,
        max(logged_ms, stats.last_commit_ms or 0),
        tuple(troubles),
        undecided_why,
    )


def _records(place: QueryPlace, batch_id: int) -> tuple[DecisionRecord, ...]:
    log = place.open_log()
    try:
        return tuple(log.read(batch_id))
    finally:
        log.close()


def _logged_ms(place: QueryPlace, finished: int | None) -> int:
    return 0 if finished is None else _written_ms(place.folder / "commits" / str(finished))


def _add_open(
    stats: QueryStats,
    place: QueryPlace,
    batch_id: int,
    commit: DecisionRecord | None,
    alive: tuple[RecordedRun, ...],
) -> None:
    """What the history leaves out: the batch at hand, and whether it is decided."""
    window = stats.window
    done = [each for each in (stats.epoch, window.finished) if each is not None]
    if done and batch_id <= max(done):
        return  # it stands in every sink, and Spark has not logged it yet
    if commit is not None and commit.prepared and stats.in_doubt is None:
        stats.in_doubt = InDoubt(
            batch_id,
            _written_ms(place.folder / DECISIONS / slot_name(batch_id, commit.attempt))
            or _written_ms(place.folder / "offsets" / str(batch_id)),
            len(commit.prepared),
            rows_of(commit.prepared),
        )
    if alive:
        began_ms = _written_ms(place.folder / "offsets" / str(batch_id))
        since_ms = max([began_ms, *(run.started_ms for run in alive)])
        sizes = {epoch.batch_id for epoch in window.epochs[-EPOCHS_LOOKED_AT:]}
        known = {each: _size(place, each) for each in sizes}
        stats.window = replace(
            window,
            at_hand=AtHand(batch_id, since_ms, _size(place, batch_id)),
            epochs=tuple(
                replace(epoch, records=known.get(epoch.batch_id)) for epoch in window.epochs
            ),
        )


def _size(place: QueryPlace, batch_id: int) -> int | None:
    """How many offsets the batch reads; None where its begin is not on record."""
    read = offset_log.folder_reader(place.folder)
    try:
        offsets = offset_log.source_offsets(read, batch_id, str(place.folder))
    except ExactumError:  # Spark has forgotten it
        return None
    if not offsets.start:
        return None
    total = 0
    for start, end in zip(offsets.start, offsets.end, strict=False):
        begins = from_json(start)
        total += sum(
            max(0, offset - begins.get(partition, 0))
            for partition, offset in from_json(end).items()
        )
    return total


def _written_ms(path: Path) -> int:
    """0 where there is no such file."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
