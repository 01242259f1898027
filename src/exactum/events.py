"""Frozen facts that the protocol emits while it works. They carry what an operator would ask.

A listener is a callable that takes an event. It must not block: it runs between two steps of an epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Event:
    """Base of all events. ``query_id`` is Spark's id of the query, ``batch_id`` its micro-batch."""

    query_id: str
    batch_id: int
    incarnation: str


@dataclass(frozen=True)
class DoorClosed(Event):
    """This incarnation has taken over: an ABORT of its own stands in slot ``attempt`` of the batch."""

    attempt: int
    leftovers: int


@dataclass(frozen=True)
class EpochRedelivered(Event):
    """A recorded commit of an earlier incarnation was sent again and is acknowledged."""

    attempt: int
    transactions: int
    rows: int


@dataclass(frozen=True)
class EpochDecided(Event):
    """COMMIT is recorded: from here the epoch will become visible, whatever crashes."""

    attempt: int
    transactions: int
    rows: int


@dataclass(frozen=True)
class EpochCompleted(Event):
    """Every participant has acknowledged. ``phase_ms`` maps write, verify, decide, commit, sweep to ms."""

    attempt: int
    transactions: int
    rows: int
    phase_ms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochAbandoned(Event):
    """The attempt failed before a decision; nothing of it is or becomes visible."""

    attempt: int
    reason: str


@dataclass(frozen=True)
class TransactionsExpired(Event):
    """Decided transactions were undone outside (a timeout, an operator) before they were committed."""

    participant: str
    transactions: int
    rows: int


@dataclass(frozen=True)
class TransactionsSalvaged(Event):
    """The rows of expired transactions were read back and are committed again: nothing is lost."""

    participant: str
    transactions: int
    rows: int


@dataclass(frozen=True)
class LeftoversSwept(Event):
    """Open transactions that no decision names were aborted (failed, speculative or crashed tasks)."""

    participant: str
    transactions: int


@dataclass(frozen=True)
class RowsDeadLettered(Event):
    """Rows that a sink refused stand in the dead letters, in the same epoch as all others."""

    rows: int


@dataclass(frozen=True)
class IncarnationFenced(Event):
    """A record of another incarnation stands where ours had to: somebody newer runs the query."""

    attempt: int
    by: str


Listener = Callable[[Event], None]
