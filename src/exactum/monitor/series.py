"""The numbers that the plots are drawn from: the last hour, in steps of five seconds."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from exactum.monitor.fact import Fact
from exactum.monitor.query_stats import LagSample

STEP_MS = 5_000
HOUR_MS = 3_600_000
STEPS_MAX = HOUR_MS // STEP_MS + 100
POINTS_MAX = 720
"""Of one plot."""
LAG_HOLDS_MS = 15_000
"""For so long a lag is drawn on that was not looked at again."""
BRIDGED_STEPS = 24
TOLD_AFTER_MS = 2_500
"""A fact is in the history, and read, so much later."""
STARTS_MAX = 200


@dataclass
class _Step:
    """One step of time: what was seen in it."""

    rows: float = 0.0
    epochs: int = 0
    lag_records: float | None = None
    lag_seconds: float | None = None
    phase_ms: dict[str, float] = field(default_factory=dict)


class Series:
    """Of one query. Bounded; the oldest steps go."""

    def __init__(self) -> None:
        self._steps: dict[int, _Step] = {}
        self._starts: list[int] = []
        self._drawn_ms = -1
        self._drawn: dict[str, Any] = {}

    def observe(self, fact: Fact, lags: Sequence[LagSample]) -> None:
        """Take a fact, in the order of their times. ``lags`` are the query's with it."""
        of = fact.fields
        if fact.name == "EpochCompleted":
            step = self._step(fact.at_ms)
            step.epochs += 1
            step.rows += int(of["rows"])
            for phase, ms in of["phase_ms"].items():
                step.phase_ms[str(phase)] = step.phase_ms.get(str(phase), 0.0) + float(ms)
        elif fact.name == "InputLag":
            step = self._step(fact.at_ms)
            step.lag_records, step.lag_seconds = float(lags[-1].records), lags[-1].seconds
        elif fact.name == "RunStarted":
            self._starts = [*self._starts[1 - STARTS_MAX :], fact.at_ms]

    def hour(self, now_ms: int) -> dict[str, Any]:
        """The last hour, for uPlot: seconds since 1970, and a list of values for each line. Drawn
        anew with each step.
        """
        end = _complete(now_ms)
        if end != self._drawn_ms:
            first = max(end - HOUR_MS, min(self._steps, default=end))
            times = list(range(first, end, STEP_MS))[-POINTS_MAX:]
            steps = [self._steps.get(at, _Step()) for at in times]
            self._drawn = _plot(times, _stepped(times, steps), self._marks(first))
            self._drawn_ms = end
        return self._drawn

    def _step(self, at_ms: int) -> _Step:
        begin = at_ms // STEP_MS * STEP_MS
        step = self._steps.get(begin)
        if step is None:
            step = self._steps[begin] = _Step()
            while len(self._steps) > STEPS_MAX:
                # Nearly always in order; a file of another machine's clock may not be.
                del self._steps[min(self._steps)]
        return step

    def _marks(self, first_ms: int) -> list[float]:
        return [at / 1_000 for at in self._starts if at >= first_ms]


def _complete(now_ms: int) -> int:
    """The end of the last step of which everything is told by now."""
    return (now_ms - TOLD_AFTER_MS) // STEP_MS * STEP_MS


def _stepped(times: list[int], steps: list[_Step]) -> list[_Step]:
    """A lag that was not looked at in a step is that of the step before, for a while."""
    found: list[_Step] = []
    last_ms, last = 0, _Step()
    for at, step in zip(times, steps, strict=True):
        if step.lag_records is not None:
            last_ms, last = at, step
        holds = at - last_ms <= LAG_HOLDS_MS
        records = last.lag_records if holds else None
        found.append(
            replace(step, lag_records=records, lag_seconds=last.lag_seconds if holds else None)
        )
    return found


def _plot(times: list[int], steps: list[_Step], marks: list[float]) -> dict[str, Any]:
    phases = list(dict.fromkeys(name for step in steps for name in step.phase_ms))
    starts = {bisect_right(times, mark * 1_000) - 1 for mark in marks}
    means = {phase: _bridged([_mean(s, phase) for s in steps], starts) for phase in phases}
    return {
        "times": [at / 1_000 for at in times],
        "marks": marks,
        "rows": [_finite(s.rows / STEP_MS * 1_000) for s in steps],
        "lag_records": [_finite(s.lag_records) for s in steps],
        "lag_seconds": [_finite(s.lag_seconds) for s in steps],
        "phases": means,
    }


def _mean(step: _Step, phase: str) -> float | None:
    if not step.epochs:
        return None
    return _finite(step.phase_ms.get(phase, 0.0) / step.epochs)


def _bridged(means: list[float | None], starts: set[int]) -> list[float | None]:
    """Between two micro-batches of one run that are not far apart the first one's duration is drawn
    on.
    """
    found = list(means)
    known = [index for index, mean in enumerate(means) if mean is not None]
    for one, next_one in pairwise(known):
        is_one_run = not any(one < start <= next_one for start in starts)
        if next_one - one <= BRIDGED_STEPS and is_one_run:
            found[one:next_one] = [means[one]] * (next_one - one)
    return found


def _finite(value: float | None) -> float | None:
    """JSON has no other numbers."""
    return round(value, 2) if value is not None and math.isfinite(value) else None
