"""How a script ended, and what that means: an exit status cannot tell a crash from a query that
must not go on.

An error that ended a query counts for the death that it caused, and for no later one: a script may
deal with it and go on. What a script ends with says whose error that is, where it is an exception
that nobody catches.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from exactum.errors import HALTING, Disposition, UnknownFailure


class Meaning(Enum):
    """What the supervisor does about it."""

    DONE = "done"
    RESTART = "restart"
    HALT = "halt"


@dataclass(frozen=True)
class Report:
    """The error with which a query ended, or the script, told before that. ``disposition`` is None
    where no error of exactum is in it; ``queries`` are those whose errors it carries.
    ``observed_s`` is by any clock that never goes back.
    """

    name: str
    message: str
    disposition: Disposition | None
    queries: frozenset[str]
    observed_s: float

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


@dataclass(frozen=True)
class Ending:
    """``text`` says in one line how it ended and why, ``error`` the last part of it.

    ``is_transient``: with an error of exactum that another start may mend. ``disposition`` is what
    that error's class says may be done next, empty where nothing is known of an error.
    ``unknown_of`` is the query that ended it with an ``UnknownFailure``. ``of`` are the queries
    whose failure it is, none where somebody has ended it; None: nobody says, so it is of each.
    """

    meaning: Meaning
    text: str
    error: str = ""
    is_transient: bool = False
    disposition: str = ""
    unknown_of: str = ""
    of: frozenset[str] | None = None


LIVES_MAX = 3
FROM_OUTSIDE = (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
"""Of these no process dies of itself."""
RELATED_S = 30.0
"""A script that ends so soon after a query of it, and does not say why, may have ended because
of it.
"""


def ending(status: int, reports: Mapping[str, Report], last: Report | None, now_s: float) -> Ending:
    """What an exit status (negative: the signal that ended it) and the last words of that life
    mean.

    ``reports`` are by query id. A script that exits with 0 is done, whatever it has reported: it
    has dealt with that.
    """
    recent = {
        query: each for query, each in reports.items() if now_s - each.observed_s <= RELATED_S
    }
    if status == 0:
        return Ending(Meaning.DONE, "it ended by itself" + _dealt_with(recent))
    cause = _cause(status, recent, reports, last)
    of = frozenset[str]() if status in FROM_OUTSIDE else None
    if cause is None:
        return Ending(Meaning.RESTART, f"it {_how(status)}", of=of)
    halts = cause.disposition in HALTING
    return Ending(
        Meaning.HALT if halts else Meaning.RESTART,
        f"it {_how(status)} with {cause}",
        str(cause),
        is_transient=cause.disposition is not None and not halts,
        disposition="" if cause.disposition is None else cause.disposition.value,
        unknown_of=(
            min(cause.queries, default="") if cause.name == UnknownFailure.__name__ else ""
        ),
        of=cause.queries or of,
    )


def _dealt_with(recent: Mapping[str, Report]) -> str:
    """A script that forgets ``awaitTermination()`` ends like one that is done."""
    if not recent:
        return ""
    query_id, each = max(recent.items(), key=lambda one: one[1].observed_s)
    return f" with status 0, so it is done, although query {query_id} had just failed with {each}"


class SameBatch:
    """Of each query, how many lives it has ended with a failure that nobody knows, and no
    micro-batch of it complete between them: no delay mends its rows or its code.
    """

    def __init__(self) -> None:
        self._lives: Counter[str] = Counter()

    def judged(self, how: Ending) -> Ending:
        """A life has ended so."""
        if how.unknown_of:
            self._lives[how.unknown_of] += 1
        if self._lives[how.unknown_of] < LIVES_MAX:
            return how
        why = f"{how.text}; so ended {LIVES_MAX} lives at one micro-batch of query {how.unknown_of}"
        return replace(how, meaning=Meaning.HALT, text=why)

    def completed(self, query_id: str) -> None:
        """A micro-batch of the query is complete."""
        del self._lives[query_id]


def _cause(
    status: int, recent: Mapping[str, Report], reports: Mapping[str, Report], last: Report | None
) -> Report | None:
    """What it ended with; None: nobody said."""
    # Who would start a fenced query again would take it back from where it runs now.
    fenced = [each for each in recent.values() if each.disposition is Disposition.FENCED]
    if fenced:
        return fenced[0]
    if last is not None:
        carried = [reports[query] for query in last.queries if query in reports]
        if last.disposition is None and carried:
            return _worst(carried)
        return last
    if status > 0 and recent:  # by sys.exit(), after it has caught something
        return _worst([*recent.values()])
    return None


def _worst(reports: list[Report]) -> Report:
    return next((each for each in reports if each.disposition in HALTING), reports[-1])


def _how(status: int) -> str:
    if status > 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
