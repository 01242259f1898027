"""Which of several participants' errors is raised: the one that tells most about what may be done
next.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from exactum.errors import (
    Disposition,
    ExactumError,
    Fenced,
    HeuristicOutcome,
    InvariantBroken,
    OutcomeUnknown,
)

log = logging.getLogger("exactum")


@dataclass(frozen=True)
class Failure:
    """A participant's name, and what it raised."""

    participant: str
    error: Exception


def refuse_failures(failures: Sequence[Failure]) -> None:
    """Raise the most serious error, the first of equal ones; log the others.

    Raises:
        Exception: there is one.
    """
    if not failures:
        return
    chosen = min(failures, key=lambda failure: _rank(failure.error))
    for failure in failures:
        if failure is not chosen:
            log.error(
                "sink %s failed as well, as sink %s did: %s: %s",
                failure.participant,
                chosen.participant,
                type(failure.error).__name__,
                failure.error,
            )
    raise chosen.error


def _rank(error: Exception) -> int:
    """0 for what a person must see whatever else there is; the more, the sooner another start
    settles it.

    One who is fenced stops before all that a successor meets as well; what is none of ours may be a
    defect.
    """
    if isinstance(error, (InvariantBroken, HeuristicOutcome)):
        return 0
    if isinstance(error, Fenced):
        return 1
    if not isinstance(error, ExactumError):
        return 3
    if error.disposition is Disposition.HALT:
        return 2
    if error.disposition is Disposition.ABORT:
        return 4
    return 5 if isinstance(error, OutcomeUnknown) else 6
