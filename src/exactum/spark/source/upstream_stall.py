"""Notices a partition whose readers are held back by an open transaction upstream. Pure: time is
given in.

A read_committed reader sees a partition up to its last stable offset, which stands at the first
record of the oldest open transaction. Where that does not move while records lie behind it, silence
is not the absence of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exactum.kafka.transaction import Partition

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
    told: bool = False


class StallTracker:
    """Remembers since when each partition stands still."""

    def __init__(self) -> None:
        self._standing: dict[Partition, Stall] = {}

    def update(
        self, stable: Mapping[Partition, int], marks: Mapping[Partition, int], now_s: float
    ) -> tuple[list[Stall], list[Stall]]:
        """The stalls to tell of, each once, and those told of that are over."""
        began: list[Stall] = []
        over: list[Stall] = []
        for partition, offset in stable.items():
            gap = marks.get(partition, offset) - offset
            before = self._standing.pop(partition, None)
            if before is not None and (before.last_stable_offset != offset or gap <= 0):
                over += [before] if before.told else []
                before = None
            if gap <= 0:
                continue
            since_s, told = (now_s, False) if before is None else (before.since_s, before.told)
            late = now_s - since_s >= STALL_AFTER_S
            self._standing[partition] = Stall(partition, offset, gap, since_s, told or late)
            if late and not told:
                began.append(self._standing[partition])
        return began, over
