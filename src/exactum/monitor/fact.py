"""A fact about a query, with the time at which it was heard: an event, what a supervisor saw, or
what an operator's command has settled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from exactum.events import Event


@dataclass(frozen=True)
class Fact:
    """``name`` is the class of an event (``EpochCompleted``), or one of ``SUPERVISOR_FACTS``.

    ``at_ms`` is since 1970, by the clock of the machine that heard it. ``fields`` holds plain
    values: those of the event, ``query_id``, ``batch_id`` and ``incarnation`` among them.
    """

    at_ms: int
    name: str
    fields: Mapping[str, Any]

    @property
    def query_id(self) -> str:
        return str(self.fields.get("query_id", ""))

    @staticmethod
    def of(event: Event, at_ms: int) -> Fact:
        """The event as a fact. Cheap: values are taken as they are."""
        return Fact(
            at_ms,
            type(event).__name__,
            {one.name: getattr(event, one.name) for one in fields(event)},
        )

    def to_line(self) -> str:
        """One line of JSON, without its end. What JSON has no word for goes as text."""
        head = {"at_ms": self.at_ms, "fact": self.name}
        return json.dumps({**head, **self.fields}, default=str, separators=(",", ":"))

    @staticmethod
    def from_line(line: str) -> Fact | None:
        """The fact again; None where the line is none: half a line, after a crash."""
        try:
            value = json.loads(line)
            return Fact(int(value.pop("at_ms")), str(value.pop("fact")), value)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


SUPERVISOR_FACTS = (
    "ProcessStarted",  # pid, standby
    # pid, meaning (restart, halt, done), error, disposition, text, is_own: that query's failure
    "ProcessEnded",
    "ProcessRestarts",  # delay_s
    "ProcessTakesOver",  # pid
    "ProcessFrozen",  # pid, silent_s
    "SupervisorEnds",  # status
    # Of ``exactum transactions``; behind OperatorFenced older drivers can decide nothing more.
    "DecidedFinished",  # batch_ids, transactions, rows
    "OperatorFenced",  # batch_id, attempt, transactions (that were aborted)
)
"""What ``exactum run`` writes of a script's processes, for each query that the script has told of;
and what an operator's command has settled. ``query_id`` is the query's.
"""


def cut(value: Any, characters: int) -> Any:
    """A value of JSON with no text longer than this; what is cut says how much is missing."""
    if isinstance(value, str):
        more = len(value) - characters
        return f"{value[:characters]} [cut: {more:,} more characters]" if more > 0 else value
    if isinstance(value, list | tuple):
        return [cut(one, characters) for one in value]
    if isinstance(value, dict):
        return {cut(name, characters): cut(one, characters) for name, one in value.items()}
    return value
