"""One query as numbers: what its facts add up to. Pure: no clock, no files, no client.

Everything that shows a query is drawn from here: the metrics, the page, ``exactum status`` and
``exactum run --watch``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exactum.monitor.fact import Fact
from exactum.monitor.window import Window

EPOCHS_KEPT = 256
"""Over how many epochs the percentiles of the phases are taken."""
RATE_WINDOW_MS = 10_000
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histograms' buckets, in seconds; one more takes what is longer."""
TOPICS_MAX = 100
"""Topics told apart; a query that reads more by a pattern has the rest under ``OTHERS``."""
OTHERS = "(others)"
WHOLE = "epoch"
"""The phase that is all phases together."""


@dataclass
class Histogram:
    """Counts by ``BUCKETS_S``, not cumulative; their sum in seconds, and how many."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    sum_s: float = 0.0
    count: int = 0

    def add(self, value_s: float) -> None:
        self.counts[bisect_left(BUCKETS_S, value_s)] += 1
        self.sum_s += value_s
        self.count += 1


@dataclass(frozen=True)
class InputState:
    """One topic as it was last seen (see ``events.InputLag``)."""

    at_ms: int
    partitions: int
    lag_records: int
    lag_seconds: float | None
    lso_gap_records: int


@dataclass(frozen=True)
class InDoubt:
    """A batch that is decided and not known to stand in every sink."""

    batch_id: int
    since_ms: int
    transactions: int
    rows: int


@dataclass(frozen=True)
class LastFailure:
    """What ended a run of the query last, in the words of its error."""

    at_ms: int
    error: str
    disposition: str
    reason: str


@dataclass
class QueryStats:
    """What is None is not known. Times are in ms since 1970."""

    query_id: str
    name: str | None = None
    run_id: str | None = None
    incarnation: str | None = None
    guarantee: str | None = None
    checkpoint: str | None = None
    is_running: bool = False
    run_began_ms: int | None = None
    observed_ms: int | None = None
    epoch: int | None = None
    """The batch that was completed last."""
    begun: tuple[int, int] | None = None
    """The batch at hand, and since when; None between two batches."""
    open_since_ms: int | None = None
    """Since when transactions of the query may be open: the begin of the oldest batch that is not
    known to be settled, also one whose driver has died.
    """
    timeouts_ms: dict[str, int] = field(default_factory=dict)
    """How long a transaction may be open, by sink, where its target sets a limit to that."""
    has_stopped: bool = False
    """The last run was stopped, or had read all that it was to read."""
    in_doubt: InDoubt | None = None
    last_decision_ms: int | None = None
    last_commit_ms: int | None = None
    rows: int = 0
    rows_read: int = 0
    rows_by_sink: Counter[str] = field(default_factory=Counter)
    epochs: Counter[str] = field(default_factory=Counter)
    """By outcome: committed, abandoned, redelivered."""
    transactions: Counter[str] = field(default_factory=Counter)
    """By result: committed, swept, expired, salvaged."""
    runs: int = 0
    takeovers: int = 0
    restarts: Counter[str] = field(default_factory=Counter)
    """By the disposition of the error that the last life ended with; ``died`` where it had none."""
    rows_dead_lettered: int = 0
    rows_skipped: int = 0
    fenced: int = 0
    inputs: dict[str, InputState] = field(default_factory=dict)
    stalled: dict[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)
    """Partitions that a transaction upstream holds back: the fields of ``UpstreamStalled``."""
    state_rows: int | None = None
    state_bytes: int | None = None
    event_time_watermark: str | None = None
    last_failure: LastFailure | None = None
    window: Window = field(default_factory=Window)
    """What it did lately; what ``monitor.verdict`` judges by."""
    phase_seconds: dict[str, Histogram] = field(default_factory=dict)
    _input_records: dict[int, int] = field(default_factory=dict)
    _phases: deque[Mapping[str, float]] = field(default_factory=lambda: deque(maxlen=EPOCHS_KEPT))
    _rows: deque[tuple[int, int]] = field(default_factory=deque)

    @property
    def label(self) -> str:
        """How people know it: its name, or the begin of its id."""
        return self.name or self.query_id[:8]

    @property
    def redelivered(self) -> int:
        return self.epochs["redelivered"]

    def observe(self, fact: Fact) -> None:
        """Take a fact of the query. One that is not known changes nothing but ``heard_ms``."""
        self.observed_ms = max(fact.at_ms, self.observed_ms or 0)
        self.window = self.window.observed(fact)
        handler = getattr(self, f"_hear_{fact.name}", None)
        if handler is not None:
            handler(fact.at_ms, fact.fields)

    # ---- runs --------------------------------------------------------------------------------

    def _hear_RunStarted(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.runs += of["incarnation"] != self.incarnation
        self.name, self.run_id, self.incarnation = of["name"], of["run_id"], of["incarnation"]
        self.guarantee, self.checkpoint = of["guarantee"], of["checkpoint"]
        self.is_running, self.has_stopped, self.run_began_ms = True, False, at_ms
        self.timeouts_ms = dict(of.get("timeouts_ms") or {})
        self.stalled.clear()

    def _hear_QueryWaits(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        if self.run_id != of["run_id"]:
            self.name, self.run_id, self.incarnation = of["name"], of["run_id"], of["incarnation"]
            self.checkpoint, self.run_began_ms = of["checkpoint"], at_ms
            self.stalled.clear()
        self.is_running, self.has_stopped = True, False

    def _hear_RunEnded(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        if self.incarnation not in (None, of["incarnation"]):
            return  # an older run, which has been taken over
        self.is_running, self.begun = False, None
        if of["error"]:
            self.last_failure = LastFailure(at_ms, of["error"], of["disposition"], of["reason"])
        else:
            self.has_stopped, self.open_since_ms = True, None

    def _hear_ProcessFrozen(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.is_running, self.begun = False, None

    def _hear_ProcessEnded(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.is_running, self.begun = False, None
        if of["meaning"] != "done":
            self.has_stopped = False
            failure = LastFailure(at_ms, of["error"], of["disposition"], of["text"])
            self.last_failure = failure

    def _hear_ProcessRestarts(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.restarts[str(of["disposition"] or "died")] += 1

    def _hear_ProcessTakesOver(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.takeovers += 1
        self.restarts[str(of["disposition"] or "died")] += 1

    def _hear_IncarnationFenced(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.fenced += 1

    # ---- epochs ------------------------------------------------------------------------------

    def _hear_EpochBegan(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.begun = int(of["batch_id"]), at_ms
        if self.open_since_ms is None:
            self.open_since_ms = at_ms
        records = of["input_records"]
        self._input_records = {} if records is None else {int(of["batch_id"]): int(records)}

    def _hear_OlderRunsFenced(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        # What was open before is committed or aborted.
        self.in_doubt, self.open_since_ms = None, None if self.begun is None else at_ms

    def _hear_EpochDecided(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.last_decision_ms = at_ms
        self.in_doubt = InDoubt(
            int(of["batch_id"]), at_ms, int(of["transactions"]), int(of["rows"])
        )

    def _hear_EpochCompleted(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        batch_id, rows = int(of["batch_id"]), int(of["rows"])
        self.epoch, self.last_commit_ms = batch_id, at_ms
        self.begun = self.in_doubt = self.open_since_ms = None
        self.epochs["committed"] += 1
        self.transactions["committed"] += int(of["transactions"])
        self.rows += rows
        self.rows_read += self._input_records.pop(batch_id, 0)
        self.rows_by_sink.update(of["rows_by_sink"])
        self._rows.append((at_ms, rows))
        phases = {name: float(ms) for name, ms in of["phase_ms"].items()}
        phases[WHOLE] = sum(phases.values())
        self._phases.append(phases)
        for name, ms in phases.items():
            self.phase_seconds.setdefault(name, Histogram()).add(ms / 1000)

    def _hear_EpochRedelivered(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        batch_id = int(of["batch_id"])
        self.epochs["redelivered"] += 1
        if self.epoch is None or batch_id > self.epoch:
            # Nobody has told of it: its driver died before it could.
            self.epoch, self.last_commit_ms = batch_id, at_ms
            self.transactions["committed"] += int(of["transactions"])
            self.rows += int(of["rows"])
            self.rows_by_sink.update(of.get("rows_by_sink") or {})
            self.rows_read += self._input_records.pop(batch_id, 0)
        self.in_doubt = self.open_since_ms = None
        if self.begun is not None and self.begun[0] == batch_id:
            self.begun = None

    def _hear_DecidedFinished(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        if of["batch_ids"] and not of["left"]:
            self.in_doubt, self.last_commit_ms = None, at_ms
        elif of["batch_ids"] and self.in_doubt is None:  # its driver died before it could tell
            self.in_doubt = InDoubt(int(of["batch_ids"][-1]), at_ms, int(of["left"]), 0)

    def _hear_EpochAbandoned(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.epochs["abandoned"] += 1
        self.begun = self.open_since_ms = None

    def _hear_TransactionsExpired(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.transactions["expired"] += int(of["transactions"])

    def _hear_TransactionsSalvaged(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.transactions["salvaged"] += int(of["transactions"])

    def _hear_LeftoversSwept(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.transactions["swept"] += int(of["transactions"])

    def _hear_RowsDeadLettered(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.rows_dead_lettered += int(of["rows"])

    def _hear_RowsSkipped(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.rows_skipped += int(of["rows"])

    # ---- what it reads and keeps -------------------------------------------------------------

    def _hear_Progress(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.state_rows, self.state_bytes = of["state_rows"], of["state_bytes"]
        self.event_time_watermark = of["event_time_watermark"]

    def _hear_InputLag(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        topic = str(of["topic"])
        if topic not in self.inputs and len(self.inputs) >= TOPICS_MAX:
            topic = OTHERS
        self.inputs[topic] = InputState(
            at_ms,
            int(of["partitions"]),
            int(of["lag_records"]),
            of["lag_seconds"],
            int(of["lso_gap_records"]),
        )

    def _hear_UpstreamStalled(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.stalled[str(of["topic"]), int(of["partition"])] = dict(of)

    def _hear_UpstreamMoved(self, at_ms: int, of: Mapping[str, Any]) -> None:  # noqa: N802
        self.stalled.pop((str(of["topic"]), int(of["partition"])), None)

    # ---- asked -------------------------------------------------------------------------------

    @property
    def lag_records(self) -> int | None:
        """Of all topics; None where none was seen."""
        return sum(at.lag_records for at in self.inputs.values()) if self.inputs else None

    def rows_per_s(self, now_ms: int) -> float:
        """Rows committed in the last ten seconds, per second."""
        while self._rows and now_ms - self._rows[0][0] > RATE_WINDOW_MS:
            self._rows.popleft()
        return sum(rows for _, rows in self._rows) / (RATE_WINDOW_MS / 1000)

    def phase_ms(self, phase: str) -> tuple[float, float] | None:
        """The median and the 95th percentile of a phase over the last epochs; ``epoch`` is all of
        them together.
        """
        values = sorted(phases[phase] for phases in self._phases if phase in phases)
        return (quantile(values, 0.5), quantile(values, 0.95)) if values else None

    def phases(self) -> list[str]:
        """The phases of the last epoch, in the order in which they come."""
        return list(self._phases[-1]) if self._phases else []


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the ordered values that is not below ``share`` of them."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
