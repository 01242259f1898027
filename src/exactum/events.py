"""Frozen facts that the protocol emits while it works. They carry what an operator would ask.

A listener is a callable that takes an event. It must not block: it runs between two steps of an
epoch.
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
class RunStarted(Event):
    """A run of a query begins: what it is, where it goes on, and what its recovery did.

    ``batch_id`` is the first batch it writes itself, and ``offsets`` are where that one begins: one
    JSON text for each source in Spark's order, or None; empty where the query has no checkpoint
    yet. ``redelivered`` are the batches of earlier runs whose recorded commit was sent again,
    ``swept`` how many leftover transactions were aborted. ``timeouts_ms`` maps each sink whose
    target aborts a transaction that is open for too long to how long that is. ``trigger_ms`` is how
    far apart micro-batches begin, 0 where each begins as soon as it can; ``inputs`` maps what is
    read of Kafka (a topic, or a pattern of topics) to its ``bootstrap.servers``; ``ends``: the
    query ends by itself when it has read what is there (available now, once, or all sources have a
    stop).
    """

    run_id: str
    name: str | None
    guarantee: str
    checkpoint: str
    offsets: tuple[str | None, ...]
    redelivered: tuple[int, ...]
    swept: int
    timeouts_ms: dict[str, int] = field(default_factory=dict)
    trigger_ms: int = 0
    ends: bool = False
    inputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class QueryWaits(Event):
    """A query that has run before was started again, and has begun no micro-batch yet; told every
    ten seconds until it does. ``batch_id`` is -1, and ``doing`` is what Spark says that it does.
    """

    run_id: str
    name: str | None
    checkpoint: str
    doing: str


@dataclass(frozen=True)
class RunEnded(Event):
    """A run of a query is over. ``batch_id`` is the last batch it was at, -1 where it came to none.

    ``error`` is the class of the error that ended it and ``disposition`` what that class says may
    be done next (see ``exactum.errors``); both are empty where the query was stopped, where it
    ended by itself (``has_read_all``), and where its script ended while it ran: ``reason`` says
    that.
    """

    error: str
    disposition: str
    reason: str
    has_read_all: bool = False


@dataclass(frozen=True)
class EpochBegan(Event):
    """The micro-batch is about to be computed, or to be redelivered where it is decided already.

    ``input_records`` is how many offsets of Kafka it reads (control markers and aborted records
    count too), None where that is not known.
    """

    input_records: int | None


@dataclass(frozen=True)
class Progress(Event):
    """Spark's own report on the last batch it finished, or on the wait since.

    ``state_rows`` and ``state_bytes`` are what its state stores hold (bytes in memory); None where
    Spark does not say. ``phase_ms`` maps Spark's phases to ms.
    """

    input_rows: int
    input_rows_per_s: float
    processed_rows_per_s: float
    state_rows: int | None
    state_bytes: int | None
    event_time_watermark: str | None
    phase_ms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class OlderRunsFenced(Event):
    """This incarnation has taken over: an ABORT of its own stands in slot ``attempt`` of the
    batch.
    """

    attempt: int
    leftovers: int


@dataclass(frozen=True)
class EpochRedelivered(Event):
    """A recorded commit of an earlier incarnation was sent again and is acknowledged.
    ``rows_by_sink`` as in ``EpochCompleted``.
    """

    attempt: int
    transactions: int
    rows: int
    rows_by_sink: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochDecided(Event):
    """COMMIT is recorded: from here the epoch will become visible, whatever crashes."""

    attempt: int
    transactions: int
    rows: int


@dataclass(frozen=True)
class EpochCompleted(Event):
    """Every participant has acknowledged. ``phase_ms`` maps write, verify, decide, commit, sweep to
    ms, ``rows_by_sink`` each participant's name to its rows (empty where nothing was prepared), and
    ``sink_phase_ms`` each participant's name to what verify and commit took of it in ms.
    """

    attempt: int
    transactions: int
    rows: int
    phase_ms: dict[str, float] = field(default_factory=dict)
    rows_by_sink: dict[str, int] = field(default_factory=dict)
    sink_phase_ms: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochAbandoned(Event):
    """The attempt failed before a decision; nothing of it is or becomes visible. Under
    ``at_most_once``: an earlier run began the batch, and it is not written again; what that run
    wrote, perhaps all of it, is visible.
    """

    attempt: int
    reason: str


@dataclass(frozen=True)
class TransactionsExpired(Event):
    """Decided transactions were undone outside (a timeout, an operator) before they were
    committed.
    """

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
    """Open transactions that no decision names were aborted (failed, speculative or crashed
    tasks).
    """

    participant: str
    transactions: int


@dataclass(frozen=True)
class FormerSinkOutOfReach(Event):
    """The query had this sink before and none of its sinks reaches what that one may have left
    open.

    ``place`` says where to look, without secrets.
    """

    participant: str
    place: str


@dataclass(frozen=True)
class RowsDeadLettered(Event):
    """Rows that a sink refused stand in the dead letters, in the same epoch as all others."""

    rows: int


@dataclass(frozen=True)
class ControlChanged(Event):
    """From this epoch on the control stream ``topic`` shows other rules; ``keys`` is how many there
    are.
    """

    topic: str
    keys: int


@dataclass(frozen=True)
class RowsSkipped(Event):
    """Records that could not be decoded were left out, as ``decode(on_error="skip")`` asks."""

    rows: int


@dataclass(frozen=True)
class InputLag(Event):
    """How far one topic is ahead of what stands in the sinks, seen every few seconds.

    ``lag_records`` counts offsets up to the last stable offset, or to the high watermark where the
    source reads uncommitted records; control markers and aborted records count too.
    ``lag_seconds`` is for how long the oldest of them could have been read, 0 where there is none,
    None where that is not known. ``lso_gap_records`` is what open transactions hide behind the last
    stable offset. ``not_counted`` are the query's sources whose lag nobody knows: not of Kafka, or
    the driver cannot ask their cluster, or that does not answer now.
    """

    topic: str
    partitions: int
    lag_records: int
    lag_seconds: float | None
    lso_gap_records: int
    not_counted: tuple[str, ...] = ()


@dataclass(frozen=True)
class UpstreamStalled(Event):
    """An open transaction upstream holds a partition's readers back: ``lso_gap`` offsets lie behind
    it.

    ``since_ms`` is when the last stable offset was first seen standing still (ms since the epoch);
    ``producer_id`` and ``transactional_id`` are whose transaction it is, None where that cannot be
    told.
    """

    topic: str
    partition: int
    since_ms: int
    last_stable_offset: int
    lso_gap: int
    producer_id: int | None
    transactional_id: str | None


@dataclass(frozen=True)
class UpstreamMoved(Event):
    """A partition that was stalled since ``since_ms`` (ms since the epoch) moves on."""

    topic: str
    partition: int
    since_ms: int


@dataclass(frozen=True)
class IncarnationFenced(Event):
    """A record of another incarnation stands where ours had to: somebody newer runs the query."""

    attempt: int
    by: str


Listener = Callable[[Event], None]
