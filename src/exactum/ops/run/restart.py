"""Whether and when a script that died is started again: Flink's strategies, with Flink's names and
defaults.

Each is told of a failure and answers with a delay, or gives up. None of them knows a clock but the
time it is told.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from exactum.errors import SettingRefused


@dataclass(frozen=True)
class StartAgain:
    """Start it again after ``delay_s``."""

    delay_s: float


@dataclass(frozen=True)
class GiveUp:
    """Do not start it again; ``reason`` is for the one who reads the log."""

    reason: str


class RestartStrategy(Protocol):
    """Remembers the failures of one job."""

    def failed(self, now_s: float) -> StartAgain | GiveUp:
        """The job failed at ``now_s`` (of any clock that never goes back)."""


@dataclass
class NoRestart:
    """Flink's ``none``."""

    def failed(self, now_s: float) -> StartAgain | GiveUp:
        return GiveUp("the restart strategy is none")


@dataclass
class FixedDelay:
    """At most ``attempts`` restarts over the whole life of the job, each after ``delay_s``."""

    attempts: int = 1
    delay_s: float = 1.0
    _failures: int = 0

    def __post_init__(self) -> None:
        _refuse_below("fixed-delay.attempts", self.attempts, 0)
        _refuse_below("fixed-delay.delay", self.delay_s, 0)

    def failed(self, now_s: float) -> StartAgain | GiveUp:
        self._failures += 1
        if self._failures > self.attempts:
            return GiveUp(f"it was started again {self.attempts} times (fixed-delay.attempts)")
        return StartAgain(self.delay_s)


@dataclass
class ExponentialDelay:
    """Restarts after a delay that grows by ``backoff_multiplier``, and begins anew after a time
    without failure.

    The delay is varied by ``jitter_factor`` of itself and stays between the two backoffs. The time
    without failure counts from the end of the last delay. ``attempts_before_reset_backoff`` is how
    many failures in a row are followed by a restart; None: all.
    """

    initial_backoff_s: float = 1.0
    max_backoff_s: float = 60.0
    backoff_multiplier: float = 1.5
    reset_backoff_threshold_s: float = 3600.0
    jitter_factor: float = 0.1
    attempts_before_reset_backoff: int | None = None
    uniform: Callable[[float, float], float] = random.uniform
    _failures: int = 0
    _started_s: float | None = None

    def __post_init__(self) -> None:
        _refuse_below("exponential-delay.initial-backoff", self.initial_backoff_s, 0.001)
        _refuse_below("exponential-delay.max-backoff", self.max_backoff_s, self.initial_backoff_s)
        _refuse_below(
            "exponential-delay.reset-backoff-threshold", self.reset_backoff_threshold_s, 0.001
        )
        if self.attempts_before_reset_backoff is not None:
            _refuse_below(
                "exponential-delay.attempts-before-reset-backoff",
                self.attempts_before_reset_backoff,
                1,
            )
        if not 1 < self.backoff_multiplier < math.inf:
            raise SettingRefused(
                "COMMAND_ARGUMENT",
                f"exponential-delay.backoff-multiplier={self.backoff_multiplier} must be a number "
                "above 1.",
            )
        if not 0 <= self.jitter_factor <= 1:
            raise SettingRefused(
                "COMMAND_ARGUMENT",
                f"exponential-delay.jitter-factor={self.jitter_factor} must be from 0 to 1.",
            )

    def failed(self, now_s: float) -> StartAgain | GiveUp:
        if (
            self._started_s is not None
            and now_s - self._started_s >= self.reset_backoff_threshold_s
        ):
            self._failures = 0
        allowed = self.attempts_before_reset_backoff
        if allowed is not None and self._failures >= allowed:
            return GiveUp(
                f"it failed {self._failures + 1} times in a row "
                "(exponential-delay.attempts-before-reset-backoff)"
            )
        delay_s = self._delay_s()
        self._failures += 1
        self._started_s = now_s + delay_s
        return StartAgain(delay_s)

    def _delay_s(self) -> float:
        try:
            grown_s = self.initial_backoff_s * self.backoff_multiplier**self._failures
        except OverflowError:
            grown_s = self.max_backoff_s
        varied_s = grown_s + self.uniform(-grown_s, grown_s) * self.jitter_factor
        return max(self.initial_backoff_s, min(varied_s, self.max_backoff_s))


@dataclass
class FirstStarts:
    """Gives up on a script that ends again and again before any query of it has begun: no delay
    mends its mistake.

    Once a query has begun, in whichever life, the script is known to be sound, and this has no more
    to say. Neither does it count a life that was long, or one that ended with an error that another
    start may mend.
    """

    allowed: int = 3
    long_s: float = 300.0
    _ended: int = 0
    _sound: bool = False

    def __post_init__(self) -> None:
        _refuse_below("start-attempts", self.allowed, 1)

    def ended(self, lived_s: float, *, began: bool, is_transient: bool) -> GiveUp | None:
        """A life has ended after ``lived_s``. ``began``: a query of it had begun."""
        self._sound = self._sound or began or lived_s >= self.long_s
        if self._sound or is_transient:
            return None
        self._ended += 1
        if self._ended < self.allowed:
            return None
        times = "at its first start" if self._ended == 1 else f"{self._ended} times"
        return GiveUp(
            f"it ended {times} before any query of it began (--start-attempts {self.allowed})"
        )


def _refuse_below(setting: str, value: float, least: float) -> None:
    """
    Raises:
        SettingRefused: ``value`` is below ``least``.
    """
    if not value >= least:
        raise SettingRefused("COMMAND_ARGUMENT", f"{setting}={value:g} must be at least {least:g}.")
