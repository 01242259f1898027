"""What a check has found: one sentence each for what it is, why it matters and how to mend it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from exactum.errors import ExactumError, Unavailable


class Level(Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"  # the query starts; something is weaker, slower or shorter than it could be
    ERROR = "error"  # the query does not start, or rows can be lost
    UNKNOWN = "unknown"  # it could not be looked at


@dataclass(frozen=True)
class DoctorFinding:
    """``area``: where, in a few words. ``why`` and ``mend`` are empty where all is well, and where
    ``what`` says it already (an error of exactum's own).
    """

    area: str
    level: Level
    what: str
    why: str = ""
    mend: str = ""

    def to_json(self) -> dict[str, str]:
        """For ``--json``; the names are for programs, and stay."""
        return {
            "area": self.area,
            "level": self.level.value,
            "what": self.what,
            "why": self.why,
            "mend": self.mend,
        }


def ok(area: str, what: str) -> DoctorFinding:
    return DoctorFinding(area, Level.OK, what)


def warning(area: str, what: str, why: str, mend: str) -> DoctorFinding:
    return DoctorFinding(area, Level.WARNING, what, why, mend)


def error(area: str, what: str, why: str, mend: str) -> DoctorFinding:
    return DoctorFinding(area, Level.ERROR, what, why, mend)


def unknown(area: str, what: str, why: str, mend: str) -> DoctorFinding:
    return DoctorFinding(area, Level.UNKNOWN, what, why, mend)


def of_failure(area: str, failure: BaseException) -> DoctorFinding:
    """An exception that ended a check: exactum's own say what to do; another is no answer."""
    if isinstance(failure, Unavailable):
        return DoctorFinding(
            area, Level.ERROR, str(failure), "A query that starts now fails like this."
        )
    if isinstance(failure, ExactumError):
        return DoctorFinding(area, Level.ERROR, str(failure))
    return unknown(
        area,
        f"The check ended with {type(failure).__name__}: {failure}",
        "What it looks at was not looked at.",
        "Look at the message; if it is none of yours, report it as a defect of exactum.",
    )


class ExitStatus(Enum):
    """What the command ends with."""

    FINE = 0
    TROUBLE = 1
    NOT_SEEN = 2


def status_of(findings: Iterable[DoctorFinding]) -> ExitStatus:
    """TROUBLE for any error, else NOT_SEEN where something could not be looked at."""
    levels = {finding.level for finding in findings}
    if Level.ERROR in levels:
        return ExitStatus.TROUBLE
    return ExitStatus.NOT_SEEN if Level.UNKNOWN in levels else ExitStatus.FINE


def skew_findings(
    area: str, whose: str, skew_s: float, uncertain_s: float
) -> Iterator[DoctorFinding]:
    """``skew_s``: how far the other clock is ahead of ours, give or take ``uncertain_s``."""
    if abs(skew_s) <= SKEW_MAX_S + uncertain_s:
        yield ok(area, f"The clock of {whose} differs by {abs(skew_s):.1f} s or less.")
        return
    way = "ahead of" if skew_s > 0 else "behind"
    yield warning(
        area,
        f"The clock of {whose} is {abs(skew_s):.0f} s {way} this machine's.",
        "No guarantee rests on clocks. But ages, timeouts, lag in seconds and start positions by "
        "time are wrong by as much.",
        "Let both machines follow one time server (chronyd, systemd-timesyncd).",
    )


SKEW_MAX_S = 2.0
"""How far two clocks may differ before it is told."""
