"""How far a query is behind the ends of its partitions, in records and in seconds. Pure: time is
given in.

    lag_records   what lies between the position and the end that may be read
    lag_seconds   now, less the moment at which that end passed the position

No record is read for the second one: each look at the ends is kept, and the moment lies between the
last look that saw the end at or before the position and the next one. Where the looks do not reach
back that far, as after a restart, it is what somebody has ``learned`` of the record there, or of an
older one; else it is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exactum.kafka.transaction import Partition

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


class LagTable:
    """What was seen of the partitions of one source."""

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
