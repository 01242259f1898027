"""What happened to one query, as far as the page shows it: bounded lists, newest last.

Pure: facts in, lists out. It takes whatever a file may hold.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from exactum.monitor.fact import Fact
from exactum.monitor.query_stats import QueryStats
from exactum.monitor.words import Sentence, is_number, sentence_of
from exactum.ops.dashboard.series import Series

BATCHES_MAX = 1_000
EVENTS_MAX = 300
FAILURES_MAX = 100
DEAD_LETTERS_MAX = 200
# fmt: off
NUMBERS = frozenset((
    "lag_records", "lag_seconds", "lso_gap_records", "lso_gap", "since_ms", "state_rows",
    "state_bytes", "batch_id", "attempt", "rows", "transactions", "partitions", "input_records",
    "input_rows", "keys", "swept", "leftovers",
))
TEXTS = frozenset((
    "query_id", "incarnation", "run_id", "name", "guarantee", "checkpoint", "error", "disposition",
    "event_time_watermark", "reason", "text", "topic", "participant", "transactional_id",
))
# fmt: on
"""Fields of facts by what they hold, where they are not None."""
LARGEST = 1e18
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What a fact raises that has not the fields of its name."""


ACKNOWLEDGED = ("committed", "redelivered", "finished")
"""Outcomes after which every sink has the batch."""


# fmt: off
OF_EACH_BATCH = frozenset((
    "EpochBegan", "EpochDecided", "EpochCompleted", "EpochAbandoned", "InputLag", "Progress",
    "QueryWaits", "RowsDeadLettered", "RowsSkipped",
))
# fmt: on
"""Facts that are no line of the timeline: they come with each micro-batch, or have lists of their
own.
"""


@dataclass(frozen=True)
class TimelineEvent:
    """One line of what happened."""

    at_ms: int
    said: Sentence


def timeline_event(fact: Fact) -> TimelineEvent | None:
    """The line of a fact; None for one that has none.

    Raises:
        KeyError, TypeError, ValueError: the fact has not the fields of its name.
    """
    said = None if fact.name in OF_EACH_BATCH else sentence_of(fact.name, fact.fields)
    return None if said is None else TimelineEvent(fact.at_ms, said)


@dataclass(frozen=True)
class BatchLine:
    """One micro-batch, or one attempt at it, that came to an end. ``outcome`` is committed,
    redelivered, finished (by ``exactum run``) or abandoned.
    """

    batch_id: int
    at_ms: int
    outcome: str
    attempt: int = 0
    rows: int = 0
    transactions: int = 0
    incarnation: str = ""
    phase_ms: Mapping[str, float] = field(default_factory=dict)
    rows_by_sink: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""

    @property
    def whole_ms(self) -> float:
        return sum(self.phase_ms.values())


@dataclass(frozen=True)
class FailureLine:
    """What went wrong. ``batch_id`` is None where no micro-batch was at hand."""

    at_ms: int
    what: str
    error: str
    reason: str
    batch_id: int | None = None


@dataclass(frozen=True)
class PutAside:
    """Rows that one micro-batch put into the dead letters, or skipped."""

    at_ms: int
    batch_id: int
    rows: int
    skipped: bool


class QueryHistory:
    """Used by one thread at a time. ``stats`` are the numbers that the same facts add up to."""

    def __init__(self, query_id: str) -> None:
        self.stats = QueryStats(query_id)
        self.series = Series()
        self.batches: deque[BatchLine] = deque(maxlen=BATCHES_MAX)
        self.events: deque[TimelineEvent] = deque(maxlen=EVENTS_MAX)
        self.failures: deque[FailureLine] = deque(maxlen=FAILURES_MAX)
        self.put_aside: deque[PutAside] = deque(maxlen=DEAD_LETTERS_MAX)
        self.malformed: Counter[str] = Counter()
        """Facts that were not understood, by name."""
        self.began_ms: int | None = None

    def observe(self, fact: Fact) -> None:
        """Take a fact of the query's history."""
        if self.began_ms is None:
            self.began_ms = fact.at_ms
        try:
            _refuse_unsound(fact)
            self.stats.observe(fact)
            self.series.observe(fact)
            self._keep(fact)
        except MALFORMED:
            if len(self.malformed) < 100:
                self.malformed[fact.name[:100]] += 1

    def _keep(self, fact: Fact) -> None:
        of = fact.fields
        event = timeline_event(fact)
        if event is not None:
            self.events.append(event)
        if fact.name in ("EpochCompleted", "EpochRedelivered", "EpochAbandoned"):
            self.batches.append(_batch_line(fact))
        if fact.name == "DecidedFinished":
            for batch_id in list(of["batch_ids"])[:FAILURES_MAX]:
                self.batches.append(BatchLine(int(batch_id), fact.at_ms, "finished"))
        if fact.name in ("RowsDeadLettered", "RowsSkipped"):
            skipped = fact.name == "RowsSkipped"
            line = PutAside(fact.at_ms, int(of["batch_id"]), int(of["rows"]), skipped)
            self.put_aside.append(line)
        failure = _failure(fact)
        if failure is not None:
            self.failures.append(failure)


def _refuse_unsound(fact: Fact) -> None:
    """What is taken as it is must be of its kind: a file may hold anything.

    Raises:
        ValueError: a field that has to be a number, or a text, is something else.
    """
    for name, value in fact.fields.items():
        if value is None:
            continue
        if name in NUMBERS and not (is_number(value) and abs(value) < LARGEST):
            raise ValueError(name)
        if name in TEXTS and not isinstance(value, str):
            raise ValueError(name)


def _batch_line(fact: Fact) -> BatchLine:
    of = fact.fields
    outcome = {
        "EpochCompleted": "committed",
        "EpochRedelivered": "redelivered",
        "EpochAbandoned": "abandoned",
    }[fact.name]
    return BatchLine(
        int(of["batch_id"]),
        fact.at_ms,
        outcome,
        attempt=int(of.get("attempt") or 0),
        rows=int(of.get("rows") or 0),
        transactions=int(of.get("transactions") or 0),
        incarnation=str(of.get("incarnation") or ""),
        phase_ms={str(name): float(ms) for name, ms in (of.get("phase_ms") or {}).items()},
        rows_by_sink={str(name): int(n) for name, n in (of.get("rows_by_sink") or {}).items()},
        reason=str(of.get("reason") or ""),
    )


def _failure(fact: Fact) -> FailureLine | None:
    of: Mapping[str, Any] = fact.fields
    if fact.name == "EpochAbandoned":
        batch_id = int(of["batch_id"])
        what = f"Attempt {int(of['attempt'])} was given up"
        return FailureLine(fact.at_ms, what, "", str(of["reason"]), batch_id)
    if fact.name == "RunEnded" and of["error"]:
        batch_id = int(of["batch_id"])
        at = batch_id if batch_id >= 0 else None
        return FailureLine(fact.at_ms, "The run ended", str(of["error"]), str(of["reason"]), at)
    if fact.name == "ProcessEnded" and of["meaning"] != "done":
        error = str(of["error"])
        how = str(of["text"]).replace(f" with {error}", "") if error else str(of["text"])
        return FailureLine(fact.at_ms, f"Process {of['pid']}: {how}", error, "")
    return None
