"""The state of one query: read once, by whoever shows, judges or measures it, from its checkpoint
and from what a process that hears of it knows. ``monitor.verdict`` judges it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from exactum.checkpoint import offset_log
from exactum.checkpoint.layout import DECISIONS
from exactum.checkpoint.offset_log import COMMITS, OFFSETS, from_json
from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.retirement import refuse_retired
from exactum.checkpoint.run_file import RecordedRun, runs
from exactum.errors import ExactumError
from exactum.files.slot_log import slot_name
from exactum.monitor import words
from exactum.monitor.decisions import read_batch
from exactum.monitor.job_history import JobHistory, JobPast
from exactum.monitor.query_stats import BATCHES_MAX, BatchAtHand, InDoubt, QueryStats
from exactum.protocol.model import DecisionRecord, rows_of
from exactum.protocol.resolve import commit_in_force
from exactum.protocol.sink import Guarantee

T = TypeVar("T")

SIZES_READ = 8
"""Past micro-batches whose offsets are read, to know how large the one at hand is beside them."""
NOTHING_KNOWN = (
    "Nothing is known of a run of exactum on this checkpoint: there is no history and no run's "
    "file below its folder exactum/."
)


@dataclass(frozen=True)
class JobState:
    """A query at one moment; nothing in it changes any more.

    ``stats`` are what its facts add up to, with what its checkpoint adds: whether a process runs
    it, what is at hand, what is in doubt. ``runs`` are those whose driver lives. ``planned`` is the
    batch that Spark has begun last, ``finished`` the one that it has logged as done, ``completed``
    the last that is known to stand in every sink (``completed_ms``: when one did, 0: none), and
    ``decided`` is ``planned`` where that is not complete and a COMMIT of it is in force.

    ``unknown_why``: why nobody can tell how it is. ``undecided_why``: why it is not known whether
    ``planned`` is decided. ``problems`` are sentences: what could not be read, and why.
    """

    at_ms: int
    stats: QueryStats
    checkpoint: str = ""
    runs: tuple[RecordedRun, ...] = ()
    planned: int | None = None
    decided: int | None = None
    completed: int | None = None
    finished: int | None = None
    completed_ms: int = 0
    unknown_why: str = ""
    undecided_why: str = ""
    problems: tuple[str, ...] = ()
    past: JobPast = field(default_factory=JobPast)

    @property
    def name(self) -> str:
        """How people know it: its name, its checkpoint's folder, or the begin of its id."""
        return self.stats.name or Path(self.checkpoint).name or self.stats.label

    @property
    def has_begun(self) -> bool:
        """The run that lives has completed a batch, or has found nothing to read."""
        began_ms = max((run.started_ms for run in self.runs), default=0)
        return self.stats.has_found_nothing or self.completed_ms >= began_ms


def read_job(
    checkpoint: str | Path,
    decision_log: str | None = None,
    *,
    history: JobHistory | None = None,
    facts: Callable[[], QueryStats] | None = None,
    now_ms: int | None = None,
) -> JobState:
    """The state of the query of this checkpoint. Never raises: what cannot be read is said.

    Args:
        checkpoint: the query's checkpointLocation.
        decision_log: what the query is given as ``decision_log=``.
        history: what was read of the query's history before; it is read on, and what happened is
            in ``JobState.past`` then.
        facts: what a process knows that hears of the query: a copy. Without it the history says
            that.
        now_ms: judged as at that time, by what is on disk now; None: now.
    """
    at_ms = words.now_ms() if now_ms is None else now_ms
    return _Reading(at_ms, str(checkpoint), decision_log, history, facts).state()


class _Reading:
    def __init__(
        self,
        at_ms: int,
        checkpoint: str,
        decision_log: str | None,
        history: JobHistory | None,
        facts: Callable[[], QueryStats] | None,
    ) -> None:
        self._at_ms = at_ms
        self._checkpoint = checkpoint
        self._decision_log = decision_log
        self._history = history
        self._follows = history is not None
        self._facts = facts
        self._problems: list[str] = []

    def state(self) -> JobState:
        place = self._attempt(lambda: QueryPlace.of(self._checkpoint, self._decision_log))
        if place is None:
            return self._without_a_place()
        # Before the facts are read: what is over by then is not at hand, and how a run ended is
        # written down before it lets go of its lock.
        files = self._attempt(lambda: runs(place.files))
        unseen, seen = self._problems[-1] if files is None else "", files or []
        finished = self._attempt(place.finished)
        planned = self._attempt(lambda: place.planned(finished))
        stats = self._stats(place)
        if stats.query_id != place.query_id:  # the checkpoint was made anew by another query
            return self._without_a_place()
        retired = _refusal(lambda: refuse_retired(place.files))  # not down: it is to stay so
        alive = tuple(run for run, lives in seen if lives and not _has_ended(stats, run))
        if seen:
            stats.is_running = bool(alive)
            stats.at_hand = stats.at_hand if alive else None
        if alive:
            stats.lives(alive[-1].incarnation, alive[-1].started_ms)
        logged_ms = self._attempt(lambda: _logged_ms(place, finished)) or 0
        if stats.observed_ms is not None:
            # A history may fall silent while the query goes on: a full disk, a folder not its own.
            stats.observed_ms = max(stats.observed_ms, logged_ms)
        known = (finished, stats.epoch, stats.finished)
        completed = max((each for each in known if each is not None), default=None)
        doubt = stats.in_doubt
        if doubt is not None and completed is not None and completed >= doubt.batch_id:
            stats.in_doubt = None
        commit, undecided_why = None, ""
        if planned is not None and not retired and (completed is None or planned > completed):
            commit, undecided_why = self._commit(place, planned, stats)
            self._attempt(lambda: _add_open(stats, place, planned, commit, alive))
        state = JobState(
            self._at_ms,
            stats,
            self._checkpoint,
            alive,
            planned,
            None if commit is None else planned,
            completed,
            finished,
            completed_ms=max(logged_ms, stats.last_commit_ms or 0),
            unknown_why=retired
            or (unseen if self._facts is None else "")
            or ("" if seen or stats.observed_ms else NOTHING_KNOWN),
            undecided_why=undecided_why,
        )
        return self._with_past(state)

    def _attempt(self, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (OSError, ExactumError, ValueError) as error:
            if str(error) not in self._problems:
                self._problems.append(str(error))
            return None

    def _stats(self, place: QueryPlace) -> QueryStats:
        """Of the facts that are heard, where somebody hears them; else of the history."""
        reported, history = None if self._facts is None else self._facts(), self._history
        if history is None:
            if reported is not None:
                return reported
            history = self._history = JobHistory(place.files)
        self._attempt(lambda: history.read(place.query_id, self._at_ms))
        written = history.stats()
        return written if reported is None else _joined(reported, written)

    def _without_a_place(self) -> JobState:
        """By what was heard, or read before the folder went."""
        if self._facts is not None:
            stats = self._facts()
        elif self._history is not None:
            stats = self._history.stats()
        else:
            stats = QueryStats("")
        why = "" if stats.observed_ms else "\n".join(self._problems)
        return self._with_past(JobState(self._at_ms, stats, self._checkpoint, unknown_why=why))

    def _commit(
        self, place: QueryPlace, batch_id: int, stats: QueryStats
    ) -> tuple[DecisionRecord | None, str]:
        """The COMMIT of the batch that is in force, and why that is not known."""
        if stats.guarantee not in (None, Guarantee.EXACTLY_ONCE.value):
            return None, ""
        before = len(self._problems)
        commit = self._attempt(lambda: commit_in_force(read_batch(place, batch_id)))
        return commit, "".join(self._problems[before:])

    def _with_past(self, state: JobState) -> JobState:
        history = self._history
        if history is None:
            return replace(state, problems=tuple(self._problems))
        # Who only asks how it is has that in the reason.
        is_there = self._attempt(lambda: history.is_there)
        if is_there is False and (self._follows or not state.unknown_why):
            self._problems.append(
                f"The history {history.where} is gone. What is shown of the past was read before."
                if history.began_ms is not None
                else f"There is no history at {history.where}: plots and past micro-batches are "
                "missing. An exactly-once query writes it, unless spark.exactum.history.enabled is "
                "false."
            )
        if history.unreadable:
            self._problems.append(
                f"{history.unreadable:,} lines of the history could not be read and are not shown "
                "(half a line after a crash, or a damaged disk)."
            )
        past = history.past(self._at_ms) if self._follows else JobPast()
        return replace(state, problems=tuple(self._problems), past=past)


def _refusal(check: Callable[[], None]) -> str:
    try:
        check()
    except (ExactumError, OSError) as error:
        return str(error)
    return ""


def _has_ended(stats: QueryStats, run: RecordedRun) -> bool:
    """It has said so, and its process is about to let go of the lock."""
    return run.incarnation == stats.ended_incarnation


def _joined(reported: QueryStats, written: QueryStats) -> QueryStats:
    """What was heard, with what it cannot know: of the time before, what an operator has finished,
    and an end that its process wrote down and did not live to tell.
    """
    known = {(each.batch_id, each.outcome, each.incarnation) for each in reported.batches}
    began_ms = reported.batches[0].at_ms if reported.batches else reported.observed_ms or 0
    before = [
        each
        for each in written.batches
        if each.at_ms <= began_ms and (each.batch_id, each.outcome, each.incarnation) not in known
    ]
    reported.batches = [*before, *reported.batches][-BATCHES_MAX:]
    finished = [each for each in (reported.finished, written.finished) if each is not None]
    reported.finished = max(finished, default=None)
    reported.take_end(written)
    return reported


def _logged_ms(place: QueryPlace, finished: int | None) -> int:
    return 0 if finished is None else _written_ms(place, f"{COMMITS}/{finished}")


def _add_open(
    stats: QueryStats,
    place: QueryPlace,
    batch_id: int,
    commit: DecisionRecord | None,
    alive: tuple[RecordedRun, ...],
) -> None:
    """What the history leaves out: the batch at hand, and whether it is decided."""
    if commit is not None and commit.prepared and stats.in_doubt is None:
        stats.in_doubt = InDoubt(
            batch_id,
            _written_ms(place, f"{DECISIONS}/{slot_name(batch_id, commit.attempt)}")
            or _written_ms(place, f"{OFFSETS}/{batch_id}"),
            len(commit.prepared),
            rows_of(commit.prepared),
        )
    if not alive:
        return
    if stats.at_hand is None:
        began_ms = _written_ms(place, f"{OFFSETS}/{batch_id}")
        since_ms = max([began_ms, *(run.started_ms for run in alive)])
        stats.at_hand = BatchAtHand(batch_id, since_ms, _size(place, batch_id))
    last = [
        batch if batch.records else replace(batch, records=_size(place, batch.batch_id))
        for batch in stats.batches[-SIZES_READ:]
    ]
    stats.batches = [*stats.batches[:-SIZES_READ], *last]


def _size(place: QueryPlace, batch_id: int) -> int | None:
    """How many offsets the batch reads; None where its begin is not on record."""
    read = offset_log.reader(place.files.read, place.checkpoint)
    try:
        offsets = offset_log.source_offsets(read, batch_id, place.checkpoint)
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


def _written_ms(place: QueryPlace, name: str) -> int:
    """0 where there is no such file."""
    entry = place.files.entry(name)
    return 0 if entry is None else entry.modified_ms
