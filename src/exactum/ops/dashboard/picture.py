"""What a page shows of one query and of one script: values of one moment, safe to draw from while
the query goes on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.run_file import RecordedRun
from exactum.monitor.query_stats import QueryStats
from exactum.monitor.verdict import Judgement, Verdict, verdict_of
from exactum.ops.dashboard.query_history import BatchLine, FailureLine, PutAside, TimelineEvent

SPARK_POINTS = 60
"""Of the small picture of a query's rate."""


@dataclass(frozen=True)
class QueryPicture:
    """``key`` names the query in addresses. ``place`` is None where it has no checkpoint that can
    be read. ``living`` are runs whose driver lives, None where that cannot be told.
    ``judgement`` is what the checkpoint says of it; None leaves it to what was heard.

    ``troubles`` are sentences: what of the picture is missing, and why.
    """

    key: str
    stats: QueryStats
    now_ms: int
    place: QueryPlace | None = None
    folder: str = ""
    living: tuple[RecordedRun, ...] | None = None
    judgement: Judgement | None = None
    planned: int | None = None
    finished: int | None = None
    batches: tuple[BatchLine, ...] = ()
    events: tuple[TimelineEvent, ...] = ()
    failures: tuple[FailureLine, ...] = ()
    put_aside: tuple[PutAside, ...] = ()
    rates: tuple[float, ...] = ()
    began_ms: int | None = None
    troubles: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How people know it."""
        return self.stats.name or (self.folder.rstrip("/").rpartition("/")[2] or self.key[:8])

    @property
    def rows_per_s(self) -> float:
        return self.stats.rows_per_s(self.now_ms)

    def batch(self, batch_id: int) -> list[BatchLine]:
        """What the history has of one micro-batch, oldest first."""
        return [line for line in self.batches if line.batch_id == batch_id]


@dataclass(frozen=True)
class ScriptProcess:
    """One process of the script. ``role`` says what it does: runs, stands by, or how it ended."""

    pid: int
    role: str
    since_ms: int | None


@dataclass(frozen=True)
class ScriptPicture:
    """What ``exactum run`` does. ``state`` is a word of ``ScriptStats``."""

    command: str
    state: str
    restarts: int
    began_ms: int
    processes: tuple[ScriptProcess, ...] = ()
    events: tuple[TimelineEvent, ...] = ()


class PageSource(Protocol):
    """Where the page has its values from. Used by several threads."""

    def pictures(self) -> list[QueryPicture]:
        """Every query that is known, in a steady order. Never raises for one of them."""

    def plots(self, key: str) -> Mapping[str, Any]:
        """See ``Series.hour``; empty where the query is not known."""

    def script(self) -> ScriptPicture | None:
        """None where there is no script, only checkpoints."""


def copy_of(stats: QueryStats) -> QueryStats:
    """The numbers as they are now. Quick: their values never change."""
    return replace(
        stats,
        rows_by_sink=Counter(stats.rows_by_sink),
        epochs=Counter(stats.epochs),
        transactions=Counter(stats.transactions),
        restarts=Counter(stats.restarts),
        inputs=dict(stats.inputs),
        stalled=dict(stats.stalled),
        phase_seconds={},
        _input_records={},
        _phases=deque(stats._phases, stats._phases.maxlen),
        _rows=deque(stats._rows),
    )


# ---- how a query is --------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """``tone`` names the colour: down, doubt, stalled, slow, held, ok or ended."""

    word: str
    tone: str
    reason: str
    todo: str = ""


TONES = {
    Verdict.DOWN: "down",
    Verdict.IN_DOUBT: "doubt",
    Verdict.STALLED: "stalled",
    Verdict.SLOW: "slow",
    Verdict.HELD_UPSTREAM: "held",
    Verdict.OK: "ok",
}
WORST_FIRST = (*(TONES[verdict] for verdict in Verdict), "ended")
NOT_BEGUN = Judged("NOT BEGUN", "ended", "No query has begun on this checkpoint.")
NOT_KNOWN = Judged("NOT KNOWN", "ended", "There is no history and no run to judge by.")


def judged(picture: QueryPicture) -> Judged:
    """The same verdict as everywhere else."""
    if picture.judgement is not None:
        return _shown(picture.judgement)
    if not picture.stats.query_id:
        return NOT_BEGUN
    if picture.stats.observed_ms is None and not picture.living:
        return NOT_KNOWN
    return _shown(verdict_of(picture.stats, picture.now_ms))


def _shown(found: Judgement) -> Judged:
    return Judged(found.verdict.value, TONES[found.verdict], found.reason, found.todo)
