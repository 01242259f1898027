"""What happened to one query, by the history beside its checkpoint: followed at the cost of what is
new, in bounded lists, whatever its files may hold.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from exactum.checkpoint.layout import HISTORY
from exactum.monitor.fact import Fact
from exactum.monitor.history import began_ms, segments
from exactum.monitor.query_stats import QueryStats, add_bounded
from exactum.monitor.series import Series
from exactum.monitor.words import BAD, is_number, sentence_of
from exactum.storage.storage import Entry, Storage

READ_BYTES_MAX = 4 << 20
"""Of one file at a time. A segment is rolled at 1 MiB."""
WHOLE_BYTES = 4 << 20
"""So much of a history is read whole, the newest; of what is older only what is rare."""
OFTEN = (b'"fact":"EpochCompleted"', b'"fact":"InputLag"', b'"fact":"Progress"')
HEAD_BYTES = 80
"""Of a line: the name of its fact is there."""
PENDING_MS = 1_000
"""Two processes write down what they saw up to half a second later. So long a fact waits for an
older one, so that facts come in order.
"""
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
OF_EACH_BATCH = frozenset((
    "EpochBegan", "EpochDecided", "EpochCompleted", "EpochAbandoned", "InputLag", "Progress",
    "QueryWaits", "RowsDeadLettered", "RowsSkipped",
))
FAILURES = frozenset(("EpochAbandoned", "RunEnded", "ProcessEnded"))
PUT_ASIDE = frozenset(("RowsDeadLettered", "RowsSkipped"))
# fmt: on
"""Fields of facts by what they hold, where they are not None; and facts that are no line of the
timeline, as they come with each micro-batch, that may say of a failure, and that count dead
letters.
"""
LARGEST = 1e18
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What a fact raises that has not the fields of its name."""


@dataclass(frozen=True)
class JobEvent:
    """Something that happened, in words: those of ``words.Sentence``. ``batch_id`` is -1 where it
    is of no micro-batch.
    """

    at_ms: int
    title: str
    tone: str
    detail: str
    batch_id: int
    rows: int


@dataclass(frozen=True)
class JobPast:
    """The newest of a list is the last; ``plots`` as ``Series.hour`` has them."""

    began_ms: int | None = None
    events: tuple[JobEvent, ...] = ()
    failures: tuple[JobEvent, ...] = ()
    put_aside: tuple[JobEvent, ...] = ()
    plots: Mapping[str, Any] = field(default_factory=dict)


class JobHistory:
    """Of the query of one checkpoint. Used by one thread at a time. It keeps what it has read, also
    when the folder goes.
    """

    def __init__(self, files: Storage) -> None:
        self.where = f"{files.where}/{HISTORY}"
        self._files = files
        self._begin("")

    def _begin(self, query_id: str) -> None:
        self._reader = HistoryReader(self._files)
        self._series = Series()
        self._events: list[JobEvent] = []
        self._failures: list[JobEvent] = []
        self._put_aside: list[JobEvent] = []
        self._malformed: Counter[str] = Counter()  # facts that were not understood, by name
        self._stats = QueryStats(query_id)
        self.began_ms: int | None = None

    def read(self, query_id: str, now_ms: int) -> None:
        """Read what is new of this query; another query than before begins anew.

        Raises:
            OSError, Unavailable, SettingRefused: it may not be read, or does not answer.
        """
        if query_id != self._stats.query_id:
            self._begin(query_id)
        self._reader.read(self._observe, now_ms)

    @property
    def is_there(self) -> bool:
        """Whether anything is written there."""
        return bool(self._files.names(HISTORY))

    @property
    def unreadable(self) -> int:
        """Lines that were no facts, or not those of their name."""
        return self._reader.unreadable + sum(self._malformed.values())

    def stats(self) -> QueryStats:
        """What all facts add up to, also those that still wait for an older one."""
        stats = self._stats.copy()
        for fact in self._reader.pending():
            if fact.query_id == stats.query_id:
                with contextlib.suppress(*MALFORMED):
                    _refuse_unsound(fact)
                    stats.observe(fact)
        return stats

    def past(self, now_ms: int) -> JobPast:
        """What happened, as far as it is kept."""
        return JobPast(
            self.began_ms,
            tuple(self._events),
            tuple(self._failures),
            tuple(self._put_aside),
            self._series.hour(now_ms),
        )

    def _observe(self, fact: Fact) -> None:
        if self.began_ms is None:
            self.began_ms = fact.at_ms
        try:
            _refuse_unsound(fact)
            if fact.query_id != self._stats.query_id:
                return
            self._stats.observe(fact)
            self._series.observe(fact, self._stats.lags)
            self._keep(fact)
        except MALFORMED:
            if len(self._malformed) < 100:
                self._malformed[fact.name[:100]] += 1

    def _keep(self, fact: Fact) -> None:
        event = _event(fact)
        if event is None:
            return
        if fact.name not in OF_EACH_BATCH:
            add_bounded(self._events, event, EVENTS_MAX)
        if fact.name in FAILURES and event.tone == BAD:
            add_bounded(self._failures, event, FAILURES_MAX)
        if fact.name in PUT_ASIDE:
            add_bounded(self._put_aside, event, DEAD_LETTERS_MAX)


def _event(fact: Fact) -> JobEvent | None:
    of, said = fact.fields, sentence_of(fact.name, fact.fields)
    if said is None:
        return None
    # The end of a run names the last batch that it completed, which is not what it is about.
    batch_id = -1 if fact.name == "RunEnded" else int(of.get("batch_id", -1))
    rows = int(of.get("rows") or 0)
    return JobEvent(fact.at_ms, said.title, said.tone, said.detail, batch_id, rows)


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


class HistoryReader:
    """The one reader of a history's files. It remembers how far it has read in each, and of what it
    read only the last second.
    """

    def __init__(self, files: Storage) -> None:
        self._files = files
        self._read_bytes: dict[str, int] = {}
        self._pending: list[tuple[int, float, Fact]] = []
        self.unreadable = 0
        """Lines that were no facts: half a line after a crash, a damaged disk."""

    def read(self, take: Callable[[Fact], None], now_ms: int) -> None:
        """Give ``take`` each fact that is new, in the order of their times.

        Raises:
            OSError, Unavailable, SettingRefused: it may not be read, or does not answer.
        """
        changed = self._changed()
        newer_bytes = sum(segment.size for segment in changed)
        for segment in changed:
            newer_bytes -= segment.size
            # What is older than a file is in no later one.
            self._give(take, (began_ms(segment.name) or 0) - PENDING_MS, float("-inf"))
            read_s = time.monotonic()
            facts = self._facts_of(segment, rare_only=newer_bytes > WHOLE_BYTES)
            self._pending += [(fact.at_ms, read_s, fact) for fact in facts]
        self._give(take, now_ms - PENDING_MS, time.monotonic() - PENDING_MS / 1_000)

    def pending(self) -> list[Fact]:
        """Those that wait for an older one, by time."""
        return [fact for _, _, fact in self._pending]

    def _give(self, take: Callable[[Fact], None], before_ms: int, read_before_s: float) -> None:
        """Those from before that time, and those that have waited for so long."""
        self._pending.sort(key=lambda each: each[0])
        ready = 0
        for at_ms, read_s, _ in self._pending:
            if at_ms > before_ms and read_s > read_before_s:
                break
            ready += 1
        facts, self._pending = self._pending[:ready], self._pending[ready:]
        for _, _, fact in facts:
            take(fact)

    def _changed(self) -> list[Entry]:
        """The files in which there is something new, oldest first."""
        found = segments(self._files)
        known = {segment.name for segment in found}
        for name in list(self._read_bytes):
            if name not in known:  # it made room for newer ones
                del self._read_bytes[name]
        return [each for each in found if each.size != self._read_bytes.get(each.name, 0)]

    def _facts_of(self, segment: Entry, *, rare_only: bool) -> list[Fact]:
        begin = self._read_bytes.get(segment.name, 0)
        if segment.size < begin:
            begin = 0  # another file of that name
        try:
            with self._files.reader(f"{HISTORY}/{segment.name}") as file:
                file.seek(begin)
                data = file.read(READ_BYTES_MAX)
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) < READ_BYTES_MAX:
            return []  # its end is not written yet
        whole = data[: end or len(data)]
        self._read_bytes[segment.name] = begin + len(whole)
        lines = whole.splitlines()
        if rare_only:
            lines = [line for line in lines if not any(f in line[:HEAD_BYTES] for f in OFTEN)]
        facts = [_fact(line) for line in lines]
        self.unreadable += facts.count(None)
        return [fact for fact in facts if fact is not None]


def _fact(line: bytes) -> Fact | None:
    try:
        return Fact.from_line(line.decode("utf-8", "replace"))
    except (OverflowError, RecursionError):  # no writer of ours wrote this
        return None
