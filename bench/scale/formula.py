"""The formula, with numbers that fit what was measured best:

duration = driver's fixed part + partitions x part of a partition + tasks x part of a task
         + waves x (fixed part of a task + partitions of a task x part of a partition)

where waves = ceil(tasks / slots).
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
    """All in ms. ``errors``: of each point, what the formula says for what was measured."""

    driver: float
    driver_partition: float
    driver_task: float
    task: float
    task_partition: float
    slots: int
    errors: tuple[tuple[Point, float, float], ...] = ()

    def duration_ms(self, partitions: int, tasks: int) -> float:
        waves = math.ceil(tasks / self.slots)
        driver = self.driver + partitions * self.driver_partition + tasks * self.driver_task
        return driver + waves * (self.task + partitions / tasks * self.task_partition)


def fitted(seen: Mapping[Point, Sequence[BatchSeen]], slots: int) -> Formula:
    """By least squares of relative errors of the points' medians, no part below 0."""
    rows = [
        (
            point.partitions,
            round(statistics.median(b.tasks for b in batches)),
            statistics.median(b.driver_ms for b in batches),
            statistics.median(b.with_tasks_ms for b in batches),
        )
        for point, batches in seen.items()
    ]
    driver = _least([(1.0, p, t) for p, t, _, _ in rows], [d for _, _, d, _ in rows])
    waves = [math.ceil(t / slots) for _, t, _, _ in rows]
    task = _least(
        [(w, w * p / t) for w, (p, t, _, _) in zip(waves, rows, strict=True)],
        [w for _, _, _, w in rows],
    )
    formula = Formula(*driver, *task, slots=slots)
    errors = tuple(
        (point, d + w, formula.duration_ms(p, t))
        for point, (p, t, d, w) in zip(seen, rows, strict=True)
    )
    return Formula(*driver, *task, slots=slots, errors=errors)


def _least(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Parts of which none is negative: one that would be is left out."""
    given, wanted = np.array(rows, dtype=float), np.array(values, dtype=float)
    given, wanted = given / wanted[:, None], wanted / wanted
    used = list(range(given.shape[1]))
    while True:
        parts = np.linalg.lstsq(given[:, used], wanted, rcond=None)[0]
        if (parts >= 0).all() or len(used) == 1:
            break
        used.pop(int(np.argmin(parts)))
    found = [0.0] * given.shape[1]
    for place, part in zip(used, parts, strict=True):
        found[place] = float(part)
    return found


def shown(formula: Formula) -> str:
    lines = [
        f"duration = {formula.driver:.0f} ms + partitions x {formula.driver_partition:.2f} ms "
        f"+ tasks x {formula.driver_task:.2f} ms + ceil(tasks / {formula.slots}) x "
        f"({formula.task:.1f} ms + partitions / tasks x {formula.task_partition:.2f} ms)"
    ]
    lines += [
        f"  {point.partitions} partitions {point.way}: measured {measured:.0f} ms, by the formula "
        f"{said:.0f} ms"
        for point, measured, said in formula.errors
    ]
    return "\n".join(lines)
