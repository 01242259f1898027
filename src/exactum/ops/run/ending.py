"""How a script ended, and what that means: an exit status cannot tell a crash from a query that must not go on."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from exactum.errors import Disposition


class Meaning(Enum):
    """What the supervisor does about it."""

    DONE = "done"
    RESTART = "restart"
    HALT = "halt"


@dataclass(frozen=True)
class Report:
    """The error with which a query of the script (or the script itself) ended, as it told before it ended."""

    name: str
    disposition: Disposition
    message: str


@dataclass(frozen=True)
class Ending:
    """``text`` says in one line how it ended and why."""

    meaning: Meaning
    text: str


HALTING = (Disposition.FENCED, Disposition.HALT)


def ending(status: int, reports: Iterable[Report]) -> Ending:
    """What an exit status (negative: the signal that ended it) and the reports of that life mean.

    A script that exits with 0 is done, whatever it has reported: it has dealt with that itself. Otherwise an error
    that forbids another start counts more than how the process went down after it.
    """
    if status == 0:
        return Ending(Meaning.DONE, "it ended by itself")
    reported = list(reports)
    how = _how(status)
    for report in reported:
        if report.disposition in HALTING:
            return Ending(Meaning.HALT, f"it {how} with {report.name}: {report.message}")
    if reported:
        return Ending(Meaning.RESTART, f"it {how} with {reported[-1].name}: {reported[-1].message}")
    return Ending(Meaning.RESTART, f"it {how}")


def _how(status: int) -> str:
    if status > 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
