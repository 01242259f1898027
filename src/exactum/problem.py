"""What a command has found: one sentence each for what is so, why it matters and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from exactum.errors import ExactumError, Unavailable


class Level(Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"  # it works; something is weaker, slower or shorter, or somebody has to act
    ERROR = "error"  # it does not work, or rows can be lost
    UNKNOWN = "unknown"  # it could not be looked at


@dataclass(frozen=True)
class Problem:
    """``where``: in a few words. ``why`` and ``do`` are empty where all is well, and where ``what``
    says it already (an error of exactum's own).
    """

    level: Level
    where: str
    what: str
    why: str = ""
    do: str = ""

    @property
    def lines(self) -> list[str]:
        """At most three: where and what, why, what to do. Each is one line, whatever is in it."""
        parts = (f"{self.where}: {self.what}", self.why, self.do and f"-> {self.do}")
        return [" ".join(part.split()) for part in parts if part]


def ok(where: str, what: str) -> Problem:
    return Problem(Level.OK, where, what)


def warning(where: str, what: str, why: str, do: str) -> Problem:
    return Problem(Level.WARNING, where, what, why, do)


def error(where: str, what: str, why: str, do: str) -> Problem:
    return Problem(Level.ERROR, where, what, why, do)


def unknown(where: str, what: str, why: str, do: str) -> Problem:
    return Problem(Level.UNKNOWN, where, what, why, do)


def not_seen(where: str, why: str) -> Problem:
    """A place that could not be looked at."""
    return Problem(Level.UNKNOWN, where, "could not be looked at", why)


SKEW_MAX_S = 2.0
"""How far two clocks may differ before it is said."""


def clock(where: str, whose: str, skew_s: float, uncertain_s: float) -> Problem:
    """``skew_s``: how far another clock is ahead of ours, give or take ``uncertain_s``."""
    if abs(skew_s) <= SKEW_MAX_S + uncertain_s:
        return ok(where, f"The clock of {whose} differs by {abs(skew_s):.1f} s or less.")
    way = "ahead of" if skew_s > 0 else "behind"
    return warning(
        where,
        f"The clock of {whose} is {abs(skew_s):.0f} s {way} this machine's.",
        "No guarantee rests on clocks. But ages, timeouts, lag in seconds and start positions by "
        "time are wrong by as much.",
        "Let both machines follow one time server (chronyd, systemd-timesyncd).",
    )


def of_failure(where: str, failure: BaseException) -> Problem:
    """An exception that ended a check: exactum's own say what to do; another is no answer."""
    if isinstance(failure, Unavailable):
        why = "A query that starts now fails like this."
        return Problem(Level.ERROR, where, str(failure), why)
    if isinstance(failure, ExactumError):
        return Problem(Level.ERROR, where, str(failure))
    return unknown(
        where,
        f"The check ended with {type(failure).__name__}: {failure}",
        "What it looks at was not looked at.",
        "Look at the message; if it is none of yours, report it as a defect of exactum.",
    )
