"""Whether and when a script that died is started again: Flink's exponential delay, with its
defaults.

What is told of a failure answers with a delay, or gives up. It knows no clock but the time it is
told.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

GROWTH = 1.5
JITTER = 0.1
"""Share by which a delay is varied, so that many scripts that died at once do not start at once."""
QUIET_S = 3600.0
"""After so long without a death the first delay comes next."""
LONG_LIFE_S = 300.0


@dataclass(frozen=True)
class GiveUp:
    """Do not start it again; ``reason`` is for the one who reads the log."""

    reason: str


@dataclass
class Restarts:
    """The first delay is ``delay_s``, each further one half as long again, up to ``delay_max_s``.
    ``attempts`` is how many failures in a row are followed by a restart; None: all. The time
    without failure counts from the end of the last delay.
    """

    delay_s: float = 1.0
    delay_max_s: float = 60.0
    attempts: int | None = None
    uniform: Callable[[float, float], float] = random.uniform
    _failures: int = 0
    _started_s: float | None = None

    def failed(self, now_s: float) -> float | GiveUp:
        """The script failed at ``now_s``, of any clock that never goes back: the delay in seconds
        after which it is started again.
        """
        if self._started_s is not None and now_s - self._started_s >= QUIET_S:
            self._failures = 0
        self._failures += 1
        if self.attempts is not None and self._failures > self.attempts:
            times = "once" if self._failures == 1 else f"{self._failures} times in a row"
            return GiveUp(f"it failed {times} (--restart-attempts {self.attempts})")
        delay_s = self._next_s()
        self._started_s = now_s + delay_s
        return delay_s

    def _next_s(self) -> float:
        try:
            grown_s = self.delay_s * GROWTH ** (self._failures - 1)
        except OverflowError:
            grown_s = self.delay_max_s
        varied_s = grown_s + self.uniform(-grown_s, grown_s) * JITTER
        return max(self.delay_s, min(varied_s, self.delay_max_s))


@dataclass
class FirstStarts:
    """Gives up on a script that ends again and again before any query of it has begun: no delay
    mends its mistake.

    Once a query has begun, in whichever life, the script is known to be sound, and this has no more
    to say. Neither does it count a life that was long, or one that ended with an error that another
    start may mend.
    """

    allowed: int = 3
    _ended: int = 0
    _sound: bool = False

    def ended(self, lived_s: float, *, began: bool, is_transient: bool) -> GiveUp | None:
        """A life has ended after ``lived_s``. ``began``: a query of it had begun."""
        self._sound = self._sound or began or lived_s >= LONG_LIFE_S
        if self._sound or is_transient:
            return None
        self._ended += 1
        if self._ended < self.allowed:
            return None
        times = "at its first start" if self._ended == 1 else f"{self._ended} times"
        return GiveUp(
            f"it ended {times} before any query of it began (--start-attempts {self.allowed})"
        )
