"""The formula, and what it says for each point:

duration = driver's fixed part + partitions x part of a partition + tasks x part of a task
         + ceil(tasks / slots) x one task

The driver's parts are those that fit the driver's time best. One task is what was measured of it:
it depends on what else the cores do meanwhile.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.scale.point import BatchSeen, Point


@dataclass(frozen=True)
class Formula:
    """The driver's parts, in ms."""

    fixed: float
    partition: float
    task: float

    def driver_ms(self, partitions: int, tasks: int) -> float:
        return self.fixed + partitions * self.partition + tasks * self.task


def fitted(seen: Mapping[Point, Sequence[BatchSeen]]) -> Formula:
    """By least squares of the relative errors of the points' medians; no part is below 0."""
    rows = [[1.0, point.partitions, _tasks(batches)] for point, batches in seen.items()]
    driver_ms = np.array([_driver_ms(batches) for batches in seen.values()])
    given = np.array(rows) / driver_ms[:, None]
    used = [0, 1, 2]
    while True:
        parts = np.linalg.lstsq(given[:, used], np.ones(len(rows)), rcond=None)[0]
        if (parts >= 0).all() or len(used) == 1:
            break
        used.pop(int(np.argmin(parts)))  # one that would be negative is left out
    found = dict(zip(used, map(float, parts), strict=True))
    return Formula(*(found.get(place, 0.0) for place in range(3)))


def shown(seen: Mapping[Point, Sequence[BatchSeen]], slots: int) -> str:
    formula = fitted(seen)
    lines = [
        f"driver = {formula.fixed:.0f} ms + partitions x {formula.partition:.2f} ms + tasks x "
        f"{formula.task:.2f} ms"
    ]
    for point, batches in seen.items():
        tasks = _tasks(batches)
        task_ms = statistics.median(b.task_ms for b in batches)
        said = formula.driver_ms(point.partitions, tasks) + math.ceil(tasks / slots) * task_ms
        measured = statistics.median(b.duration_ms for b in batches)
        lines.append(
            f"  {point.partitions} partitions, {tasks} tasks: {measured:.0f} ms, by the formula "
            f"{said:.0f} ms"
        )
    return "\n".join(lines)


def _driver_ms(batches: Sequence[BatchSeen]) -> float:
    return statistics.median(b.driver_ms for b in batches)


def _tasks(batches: Sequence[BatchSeen]) -> int:
    return round(statistics.median(b.tasks for b in batches))
