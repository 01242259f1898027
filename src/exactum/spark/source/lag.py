"""How far a source is behind the ends of its partitions, in records and in seconds, and where
others' transactions hold its readers back, from what the watch of its topics sees anyway.

    lag_records   what lies between the position and the end that may be read
    lag_seconds   now, less the moment at which that end passed the position

A position is where the last complete batch ended: what is in a batch at hand is not in the sinks.
No record is read for the second one: each look at the ends is kept, and the moment lies between the
last look that saw the end at or before the position and the next one. Where the looks do not reach
back that far, as after a restart, it is what somebody has ``learned`` of the record there, or of an
older one; else it is not known.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from exactum.checkpoint.offset_log import Offsets
from exactum.errors import ExactumError
from exactum.kafka.requests import BrokerRequests, TopicSeen
from exactum.kafka.transaction import Partition

logger = logging.getLogger("exactum")

ASKED_MAX = 100
"""Records whose time is asked for at once; the rest later."""
ASKED_AGAIN_S = 15.0
"""How long nothing is asked for then. Meanwhile what was learned of an older record counts."""
LOOKS_MAX = 64
"""Looks kept for each partition. A lag that lasts longer keeps every second one, and so on."""

_Look = tuple[float, int]
"""(when, in seconds by any clock that never goes back; the end at that moment)"""


@dataclass(frozen=True)
class TopicLag:
    """``seconds`` is None where the age of a partition's oldest record is not known."""

    partitions: int
    records: int
    seconds: float | None
    lso_gap: int

    def plus(self, other: TopicLag) -> TopicLag:
        """Of two sources that read one topic: more partitions, and the older age of the two."""
        known = None not in (self.seconds, other.seconds)
        return TopicLag(
            self.partitions + other.partitions,
            self.records + other.records,
            max(self.seconds or 0.0, other.seconds or 0.0) if known else None,
            self.lso_gap + other.lso_gap,
        )


@dataclass(frozen=True)
class TopicState:
    """The topics of a source at one moment: what was seen of each by its name, where partitions
    begin, and their two ends (the last stable offset only where the source reads committed
    records).
    """

    topics: Mapping[str, TopicSeen]
    beginnings: Offsets
    last_stable_offsets: Offsets
    high_watermarks: Offsets

    def lso_gap(self, partition: Partition) -> int:
        """What open transactions hide."""
        mark = self.high_watermarks.get(partition, 0)
        return max(0, mark - self.last_stable_offsets.get(partition, mark))


class LagTable:
    """What was seen of the partitions of one source. Pure: time is given in."""

    def __init__(self) -> None:
        self._looks: dict[Partition, list[_Look]] = {}
        self._learned: dict[Partition, _Look] = {}

    def saw(self, ends: Mapping[Partition, int], now_s: float) -> None:
        """The ends of all partitions at one moment; those that are not among them are forgotten."""
        self._looks = {
            partition: _with(self._looks.get(partition, []), (now_s, end))
            for partition, end in ends.items()
        }
        self._learned = {p: known for p, known in self._learned.items() if p in ends}

    def learned(self, partition: Partition, position: int, at_s: float) -> None:
        """The record at ``position`` could be read from ``at_s`` on."""
        self._learned[partition] = at_s, position

    def reaches_back(self, partition: Partition, position: int) -> bool:
        """Whether a look saw the partition's end at or before ``position``."""
        looks = self._looks.get(partition, [])
        return bool(looks) and looks[0][1] <= position

    def behind(self, positions: Mapping[Partition, int]) -> dict[Partition, int]:
        """How many offsets each partition's end is ahead; those without a position are left
        out.
        """
        return {
            partition: max(0, looks[-1][1] - positions[partition])
            for partition, looks in self._looks.items()
            if partition in positions
        }

    def passed_s(self, partition: Partition, position: int) -> float | None:
        """When the partition's end passed ``position``; None: not known, or not yet.

        Looks before that are forgotten: a position never goes back.
        """
        looks = self._looks.get(partition, [])
        if not looks or looks[-1][1] <= position:
            return None
        if not self.reaches_back(partition, position):
            at_s, known = self._learned.get(partition, (0.0, position + 1))
            return at_s if known <= position else None
        del looks[: sum(1 for _, end in looks if end <= position) - 1]
        (from_s, start), (to_s, end) = looks[0], looks[1]
        return from_s + (to_s - from_s) * (position - start) / (end - start)


def _with(looks: list[_Look], new: _Look) -> list[_Look]:
    if looks and new[1] < looks[-1][1]:
        return [new]  # a leader that has lost records: what was seen is of another log
    if len(looks) > 1 and looks[-2][1] == looks[-1][1] == new[1]:
        return [*looks[:-1], new]  # it stands still: its first and its last moment say that
    if len(looks) >= LOOKS_MAX:
        looks = [*looks[:-1:2], looks[-1]]
    return [*looks, new]


class SourceLag:
    """Of one source of a run. ``stop``: what lies past it is not to be read.

    ``position`` is set by the query's thread; ``saw`` and ``take`` are called by one other thread,
    and ``saw`` in the run's first batch by the query's, before the other one is there.
    """

    def __init__(self, read_committed: bool, stop: Offsets | None) -> None:
        self.position: Offsets | None = None
        """Where the last complete batch ended; None where that is not known."""
        self._read_committed = read_committed
        self._stop = stop
        self._table = LagTable()
        self._state: TopicState | None = None
        self._ask_from_s = 0.0

    def saw(self, state: TopicState) -> None:
        self._state = state
        ends = state.last_stable_offsets if self._read_committed else state.high_watermarks
        if self._stop is not None:
            ends = {p: min(end, self._stop.get(p, 0)) for p, end in ends.items()}
        self._table.saw(ends, time.monotonic())

    def take(self, requests: BrokerRequests) -> dict[str, TopicLag]:
        """The lag of each topic as it was last seen; none where that was taken already."""
        state, self._state = self._state, None
        position = self.position
        if state is None or position is None:
            return {}
        # What the log has no more is not to be read; a new partition is read from its beginning.
        positions = {p: max(position.get(p, 0), first) for p, first in state.beginnings.items()}
        behind = self._table.behind(positions)
        now_s = time.monotonic()
        passed = {
            p: self._table.passed_s(p, positions[p]) for p, records in behind.items() if records
        }
        older = [p for p in sorted(passed) if not self._table.reaches_back(p, positions[p])]
        if older and now_s >= self._ask_from_s:
            first = sorted(older, key=lambda p: passed[p] is not None)[:ASKED_MAX]
            self._ask({p: positions[p] for p in first}, requests, now_s)
            passed.update({p: self._table.passed_s(p, positions[p]) for p in older})
        found: dict[str, TopicLag] = {}
        for partition, records in behind.items():
            at_s = passed.get(partition)
            seconds = 0.0 if not records else None if at_s is None else max(0.0, now_s - at_s)
            lag = TopicLag(1, records, seconds, state.lso_gap(partition))
            before = found.get(partition[0])
            found[partition[0]] = lag if before is None else before.plus(lag)
        return found

    def _ask(self, offsets: Offsets, requests: BrokerRequests, now_s: float) -> None:
        """After a start the looks do not reach back: the records there know how old they are."""
        wall_ms = time.time() * 1000
        self._ask_from_s = now_s + ASKED_AGAIN_S
        try:
            times = requests.record_times(offsets)
        except ExactumError as error:
            logger.debug("read_kafka: the age of what is not read is not known: %s", error)
            return
        for partition, at_ms in times.items():
            age_s = max(0.0, (wall_ms - at_ms) / 1000)
            self._table.learned(partition, offsets[partition], now_s - age_s)


# ---- readers that are held back ------------------------------------------------------------------

STALL_AFTER_S = 30.0
"""How long an open transaction upstream may hold back a partition's readers before it is told."""


@dataclass(frozen=True)
class Stall:
    """A last stable offset that stands still below the high watermark, seen so first at
    ``since_s``.
    """

    partition: Partition
    last_stable_offset: int
    lso_gap: int
    since_s: float
    reported: bool = False


class StallTracker:
    """Notices a partition whose readers are held back by an open transaction upstream. Pure: time
    is given in.

    A read_committed reader sees a partition up to its last stable offset, which stands at the first
    record of the oldest open transaction. Where that does not move while records lie behind it,
    silence is not the absence of records.
    """

    def __init__(self) -> None:
        self._stalls: dict[Partition, Stall] = {}

    def update(
        self, stable: Mapping[Partition, int], marks: Mapping[Partition, int], now_s: float
    ) -> tuple[list[Stall], list[Stall]]:
        """The stalls to tell of, each once, and those told of that are over."""
        began: list[Stall] = []
        over: list[Stall] = []
        for partition, offset in stable.items():
            gap = marks.get(partition, offset) - offset
            before = self._stalls.pop(partition, None)
            if before is not None and (before.last_stable_offset != offset or gap <= 0):
                over += [before] if before.reported else []
                before = None
            if gap <= 0:
                continue
            since_s, shown = (now_s, False) if before is None else (before.since_s, before.reported)
            late = now_s - since_s >= STALL_AFTER_S
            self._stalls[partition] = Stall(partition, offset, gap, since_s, shown or late)
            if late and not shown:
                began.append(self._stalls[partition])
        return began, over
