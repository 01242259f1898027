"""One query as numbers: what its facts add up to. Pure: no clock, no files, no client.

Everything that shows or judges a query is drawn from here, by ``monitor.job``.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from exactum.monitor.fact import Fact

T = TypeVar("T")

BATCHES_MAX = 256
"""Micro-batches that are kept."""
RATE_WINDOW_MS = 10_000
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histograms' buckets, in seconds; one more takes what is longer."""
TOPICS_MAX = 100
"""Topics told apart; a query that reads more by a pattern has the rest under ``OTHERS``."""
OTHERS = "(others)"
WHOLE = "epoch"
"""The phase that is all phases together."""
LAGS_MAX = 256
"""Samples of lag. Where there are more, the older ones are joined in pairs, by the lower lag."""
GAPS_MAX = 32
SAME_SAMPLE_MS = 1_000
"""Topics whose lag comes within this time were asked together."""
FRESH_MS = 15_000
"""A lag that was seen longer ago is not what it is now."""
FORGOTTEN_MS = 120_000
"""A topic whose lag did not come for so long is not read any more."""
WAITS_FOR_DATA = "Waiting for "
"""How Spark begins to say that there is nothing to do (``QueryWaits.doing``)."""
COMMITTED, REDELIVERED, FINISHED, ABANDONED = "committed", "redelivered", "finished", "abandoned"
"""How an attempt at a micro-batch ended; FINISHED: by an operator's command."""


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


def _together(at_ms: int, each: Sequence[InputState]) -> InputState:
    """Several topics as one: the sum, and the oldest age."""
    ages = [state.lag_seconds for state in each if state.lag_records]
    return InputState(
        at_ms,
        sum(state.partitions for state in each),
        sum(state.lag_records for state in each),
        None if None in ages else max((age for age in ages if age is not None), default=0.0),
        sum(state.lso_gap_records for state in each),
    )


@dataclass(frozen=True)
class LagSample:
    """All topics together. ``seconds`` is the oldest age, None where it is not known."""

    at_ms: int
    records: int
    seconds: float | None


@dataclass(frozen=True)
class BatchLine:
    """An attempt at a micro-batch that came to an end. ``records`` is what it read, ``took_ms`` how
    long it was at work: None where that is not known.
    """

    batch_id: int
    at_ms: int
    outcome: str
    attempt: int = 0
    rows: int = 0
    transactions: int = 0
    incarnation: str = ""
    phase_ms: Mapping[str, float] = field(default_factory=dict)
    rows_by_sink: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    records: int | None = None
    took_ms: int = 0

    @property
    def whole_ms(self) -> float:
        return sum(self.phase_ms.values())


@dataclass(frozen=True)
class BatchAtHand:
    """The micro-batch that was begun last and is not over."""

    batch_id: int
    since_ms: int
    records: int | None


@dataclass(frozen=True)
class InDoubt:
    """A batch that is decided and not known to stand in every sink."""

    batch_id: int
    since_ms: int
    transactions: int
    rows: int


@dataclass(frozen=True)
class RunEnd:
    """What ended a run of the query, in the words of the error or of who saw the end."""

    at_ms: int
    error: str
    disposition: str
    reason: str


@dataclass
class QueryStats:
    """What is None is not known. Times are in ms since 1970. The newest of a list is the last."""

    query_id: str
    name: str | None = None
    run_id: str | None = None
    incarnation: str | None = None
    guarantee: str | None = None
    checkpoint: str | None = None
    trigger_ms: int = 0
    """As in ``events.RunStarted``."""
    is_running: bool = False
    has_stopped: bool = False
    """The last run was stopped, or had read all that it was to read (``has_read_all``)."""
    has_read_all: bool = False
    run_began_ms: int | None = None
    observed_ms: int | None = None
    is_waiting: bool = False
    """It was started and has begun no micro-batch. ``waits_ms``: since when not for want of data.
    """
    waits_ms: int | None = None
    ended_incarnation: str | None = None
    """Of the run that has said last that it is over."""
    is_watched: bool = False
    """The lag of its topics comes every few seconds, so it is never silent for long."""
    gaps_ms: list[int] = field(default_factory=list)
    """How long it was silent between its last facts."""
    failed_starts: int = 0
    """Runs in a row that ended with an error before they completed anything."""
    restart_at_ms: int | None = None
    """When a supervisor starts it again."""
    last_end: RunEnd | None = None
    """What ended the last run, its own failure or not; None: it runs, was stopped, or nobody knows.
    """
    last_failure: RunEnd | None = None
    """What of its own ended a run last."""
    epoch: int | None = None
    """The batch that was completed last."""
    finished: int | None = None
    """The last batch that an operator's command has finished, whose driver had died."""
    at_hand: BatchAtHand | None = None
    """None between two batches."""
    in_doubt: InDoubt | None = None
    open_since_ms: int | None = None
    """Since when transactions of the query may be open: the begin of the oldest batch that is not
    known to be settled, also one whose driver has died.
    """
    timeouts_ms: dict[str, int] = field(default_factory=dict)
    """How long a transaction may be open, by sink, where its target sets a limit to that."""
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
    stalled: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """By topic and partition, what a transaction upstream holds back: the fields of
    ``UpstreamStalled``.
    """
    state_rows: int | None = None
    state_bytes: int | None = None
    event_time_watermark: str | None = None
    lags: list[LagSample] = field(default_factory=list)
    """Of the run at hand."""
    not_counted: list[str] = field(default_factory=list)
    """Sources that ``lags`` say nothing of."""
    batches: list[BatchLine] = field(default_factory=list)
    phase_seconds: dict[str, Histogram] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Of no interest to anybody else: what is not a field is in no JSON.
        self._input_records: dict[int, int] = {}
        self._topics: dict[str, InputState] = {}
        self._has_failed = False  # the run at hand: its death may come twice

    @property
    def label(self) -> str:
        """How people know it: its name, or the begin of its id."""
        return self.name or self.query_id[:8]

    def observe(self, fact: Fact) -> None:
        """Take a fact of the query. One that is not known changes nothing but the silence."""
        gap_ms = 0 if self.observed_ms is None else max(0, fact.at_ms - self.observed_ms)
        self.observed_ms = max(fact.at_ms, self.observed_ms or 0)
        add_bounded(self.gaps_ms, gap_ms, GAPS_MAX)
        handle = HANDLERS.get(fact.name)
        if handle is not None:
            handle(self, fact.at_ms, fact.fields)

    def copy(self) -> QueryStats:
        """The numbers as they are now, for another thread."""
        whole = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | list):
                setattr(whole, name, copy.copy(value))
        whole.phase_seconds = {
            name: Histogram([*each.counts], each.sum_s, each.count)
            for name, each in self.phase_seconds.items()
        }
        return whole

    @property
    def has_found_nothing(self) -> bool:
        """It was started, and waits for data."""
        return self.is_waiting and self.waits_ms is None and self.at_hand is None

    @property
    def has_recovered(self) -> bool:
        """A micro-batch was completed since ``last_failure``, or a run ended well."""
        return self.last_failure is not None and (self.has_stopped or not self.failed_starts)

    def is_past(self, seen_ms: int, now_ms: int) -> bool:
        """Whether a lag that was seen then is told with its age."""
        return now_ms - seen_ms > FRESH_MS or not self.is_running

    # ---- runs --------------------------------------------------------------------------------

    def _run_started(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.guarantee, self.checkpoint = of["guarantee"], of["checkpoint"]
        self.timeouts_ms = dict(of.get("timeouts_ms") or {})
        self.trigger_ms = int(of.get("trigger_ms") or 0)
        self._identify(at_ms, of)

    def _waits(self, at_ms: int, of: Mapping[str, Any]) -> None:
        """A run that has begun nothing: it is known by that alone. One that is stopped meanwhile
        may have said how it ended before.
        """
        if of["incarnation"] == self.ended_incarnation:
            return
        if self.run_id != of["run_id"]:
            self.checkpoint = of["checkpoint"]
            self._identify(at_ms, of)
        self.is_running, self.has_stopped = True, False
        self._begin_silence()
        for_data = str(of["doing"]).startswith(WAITS_FOR_DATA)
        since_ms = at_ms if self.waits_ms is None else self.waits_ms
        self.is_waiting, self.waits_ms = True, None if for_data else since_ms
        self.is_watched = True

    def lives(self, incarnation: str, began_ms: int) -> None:
        """This run lives, as its lock says, and may have told nothing yet: then what is known of
        silence, waits and the batch at hand was an older run's.
        """
        if incarnation <= (self.incarnation or ""):
            return
        self.at_hand = None
        self._begin(began_ms)
        if self.observed_ms is not None:
            self.observed_ms = max(self.observed_ms, began_ms)

    def take_end(self, written: QueryStats) -> None:
        """How the run at hand ended, of what is written of it, where that was not heard."""
        is_of_this = self.incarnation is not None and self.incarnation == written.ended_incarnation
        if not is_of_this or written.ended_incarnation == self.ended_incarnation:
            return
        self.ended_incarnation = written.ended_incarnation
        self.is_running, self.at_hand = False, None
        if self.last_end is None:  # nor from who saw its process end
            self.has_stopped, self.has_read_all = written.has_stopped, written.has_read_all
            self.last_end, self.last_failure = written.last_end, written.last_failure
            self.open_since_ms, self.failed_starts = written.open_since_ms, written.failed_starts

    def _identify(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.runs += of["incarnation"] != self.incarnation
        self.name, self.run_id, self.incarnation = of["name"], of["run_id"], of["incarnation"]
        self._begin(at_ms)

    def _begin(self, at_ms: int) -> None:
        self.is_running, self.has_stopped, self.run_began_ms = True, False, at_ms
        self.last_end = None
        self.is_waiting, self.waits_ms, self.is_watched = False, None, False
        self.stalled.clear()
        self._begin_silence()

    def _begin_silence(self) -> None:
        """What was known of lags and pauses was an older run's."""
        self.lags, self.gaps_ms, self.restart_at_ms = [], [], None
        self._topics, self._has_failed, self.not_counted = {}, False, []

    def _run_ended(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self._note_death(failed=bool(of["error"]))
        # It was over before a start that was refused, and says so only behind it.
        is_late = of["incarnation"] < (self.ended_incarnation or "")
        self.ended_incarnation = of["incarnation"]
        if self.incarnation is not None and of["incarnation"] < self.incarnation:
            return  # an older run, which has been taken over
        self.is_running, self.at_hand = False, None
        if of["error"]:
            self.has_stopped = False
            self.last_end = RunEnd(at_ms, of["error"], of["disposition"], of["reason"])
            self.last_failure = self.last_end
        elif of["reason"]:  # its script ended while it ran: no failure of it, and no stop
            self.last_end = RunEnd(at_ms, "", "", of["reason"])
        elif not is_late:
            self.has_stopped, self.open_since_ms, self.last_end = True, None, None
            self.has_read_all = bool(of.get("has_read_all"))

    def _process_ended(self, at_ms: int, of: Mapping[str, Any]) -> None:
        failed = of["meaning"] != "done"
        is_own = failed and bool(of.get("is_own", True))
        self._note_death(failed=is_own)
        self.is_running, self.at_hand = False, None
        if not failed:
            return
        self.has_stopped = False
        if is_own or not self._has_failed:  # else it has said already what was its own end
            self.last_end = RunEnd(at_ms, of["error"], of["disposition"], of["text"])
        if is_own:
            self.last_failure = self.last_end

    def _note_death(self, *, failed: bool) -> None:
        self.failed_starts += failed and not self._has_failed
        self._has_failed = self._has_failed or failed

    def _process_frozen(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.is_running, self.at_hand = False, None

    def _process_restarts(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.restart_at_ms = at_ms + round(float(of["delay_s"]) * 1000)
        self.restarts[str(of["disposition"] or "died")] += 1

    def _process_takes_over(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.takeovers += 1
        self.restarts[str(of["disposition"] or "died")] += 1

    def _supervisor_ends(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.restart_at_ms = None

    def _fenced(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.fenced += 1

    # ---- micro-batches -----------------------------------------------------------------------

    def _epoch_began(self, at_ms: int, of: Mapping[str, Any]) -> None:
        batch_id, records = int(of["batch_id"]), of["input_records"]
        self.at_hand = BatchAtHand(batch_id, at_ms, None if records is None else int(records))
        if self.open_since_ms is None:
            self.open_since_ms = at_ms
        self._input_records = {} if records is None else {batch_id: int(records)}

    def _older_runs_fenced(self, at_ms: int, of: Mapping[str, Any]) -> None:
        # What was open before is committed or aborted.
        self.in_doubt, self.open_since_ms = None, None if self.at_hand is None else at_ms

    def _epoch_decided(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.last_decision_ms = at_ms
        transactions, rows = int(of["transactions"]), int(of["rows"])
        self.in_doubt = InDoubt(int(of["batch_id"]), at_ms, transactions, rows)

    def _epoch_completed(self, at_ms: int, of: Mapping[str, Any]) -> None:
        batch_id, rows, begun = int(of["batch_id"]), int(of["rows"]), self.at_hand
        phases = {str(name): float(ms) for name, ms in of["phase_ms"].items()}
        whole_ms = took_ms = sum(phases.values())
        records = None
        if begun is not None and begun.batch_id == batch_id:
            took_ms, records = max(whole_ms, at_ms - begun.since_ms), begun.records
        self._completed(at_ms, of, batch_id, rows)
        self.failed_starts, self.at_hand = 0, None
        self.epochs["committed"] += 1
        self._keep(at_ms, of, COMMITTED, phase_ms=phases, records=records, took_ms=round(took_ms))
        for name, ms in {**phases, WHOLE: whole_ms}.items():
            self.phase_seconds.setdefault(name, Histogram()).add(ms / 1000)

    def _completed(self, at_ms: int, of: Mapping[str, Any], batch_id: int, rows: int) -> None:
        self.epoch, self.last_commit_ms = batch_id, at_ms
        self.in_doubt = self.open_since_ms = None
        self.transactions["committed"] += int(of["transactions"])
        self.rows += rows
        self.rows_read += self._input_records.pop(batch_id, 0)
        self.rows_by_sink.update(of.get("rows_by_sink") or {})

    def _epoch_redelivered(self, at_ms: int, of: Mapping[str, Any]) -> None:
        batch_id = int(of["batch_id"])
        self.epochs["redelivered"] += 1
        if self.epoch is None or batch_id > self.epoch:
            # Nobody has said so before: its driver died too early.
            self._completed(at_ms, of, batch_id, int(of["rows"]))
        self.in_doubt = self.open_since_ms = None
        if self.at_hand is not None and self.at_hand.batch_id == batch_id:
            self.at_hand = None
        self._keep(at_ms, of, REDELIVERED)

    def _decided_finished(self, at_ms: int, of: Mapping[str, Any]) -> None:
        batches = [int(batch_id) for batch_id in of["batch_ids"]][-BATCHES_MAX:]
        if batches:
            self.in_doubt, self.last_commit_ms, self.finished = None, at_ms, max(batches)
        for batch_id in batches:
            add_bounded(self.batches, BatchLine(batch_id, at_ms, FINISHED), BATCHES_MAX)

    def _epoch_abandoned(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.epochs["abandoned"] += 1
        self.at_hand = self.open_since_ms = None
        self._keep(at_ms, of, ABANDONED, reason=str(of.get("reason") or ""))

    def _keep(self, at_ms: int, of: Mapping[str, Any], outcome: str, **more: Any) -> None:
        batch = BatchLine(
            int(of["batch_id"]),
            at_ms,
            outcome,
            attempt=int(of.get("attempt") or 0),
            rows=int(of.get("rows") or 0),
            transactions=int(of.get("transactions") or 0),
            incarnation=str(of.get("incarnation") or ""),
            rows_by_sink={str(name): int(n) for name, n in (of.get("rows_by_sink") or {}).items()},
            **more,
        )
        add_bounded(self.batches, batch, BATCHES_MAX)

    def _expired(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.transactions["expired"] += int(of["transactions"])

    def _salvaged(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.transactions["salvaged"] += int(of["transactions"])

    def _swept(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.transactions["swept"] += int(of["transactions"])

    def _dead_lettered(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.rows_dead_lettered += int(of["rows"])

    def _skipped(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.rows_skipped += int(of["rows"])

    # ---- what it reads and keeps -------------------------------------------------------------

    def _progress(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.state_rows, self.state_bytes = of["state_rows"], of["state_bytes"]
        self.event_time_watermark = of["event_time_watermark"]

    def _lag(self, at_ms: int, of: Mapping[str, Any]) -> None:
        topic, seconds = str(of["topic"]), of["lag_seconds"]
        self._topics = {
            name: state
            for name, state in self._topics.items()
            if at_ms - state.at_ms < FORGOTTEN_MS
        }
        self._topics[topic] = InputState(
            at_ms,
            int(of["partitions"]),
            int(of["lag_records"]),
            None if seconds is None else float(seconds),
            int(of["lso_gap_records"]),
        )
        if topic in self.inputs or len(self.inputs) < TOPICS_MAX:
            self.inputs[topic] = self._topics[topic]
        else:
            others = (state for name, state in self._topics.items() if name not in self.inputs)
            self.inputs[OTHERS] = _together(at_ms, list(others))
        every = _together(at_ms, list(self._topics.values()))
        self.is_watched, self.not_counted = True, [*map(str, of.get("not_counted") or ())]
        self._add_lag(LagSample(at_ms, every.lag_records, every.lag_seconds))

    def _add_lag(self, new: LagSample) -> None:
        lags = self.lags
        if lags and 0 <= new.at_ms - lags[-1].at_ms < SAME_SAMPLE_MS:
            lags.pop()
        if len(lags) >= LAGS_MAX:
            older = lags[: LAGS_MAX // 2]
            pairs = zip(older[::2], older[1::2], strict=False)
            lags[: LAGS_MAX // 2] = [min(pair, key=lambda s: s.records) for pair in pairs]
        lags.append(new)

    def _upstream_stalled(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.stalled[_partition(of)] = dict(of)

    def _upstream_moved(self, at_ms: int, of: Mapping[str, Any]) -> None:
        self.stalled.pop(_partition(of), None)

    # ---- derived -----------------------------------------------------------------------------

    @property
    def completed(self) -> list[BatchLine]:
        """Micro-batches that this query's runs have completed themselves."""
        return [batch for batch in self.batches if batch.outcome == COMMITTED]

    def rows_per_s(self, now_ms: int) -> float:
        """Rows committed in the last ten seconds, per second."""
        recent = (batch.rows for batch in self.completed if now_ms - batch.at_ms <= RATE_WINDOW_MS)
        return sum(recent) / (RATE_WINDOW_MS / 1000)


HANDLERS: Mapping[str, Callable[[QueryStats, int, Mapping[str, Any]], None]] = {
    "RunStarted": QueryStats._run_started,
    "QueryWaits": QueryStats._waits,
    "RunEnded": QueryStats._run_ended,
    "ProcessEnded": QueryStats._process_ended,
    "ProcessFrozen": QueryStats._process_frozen,
    "ProcessRestarts": QueryStats._process_restarts,
    "ProcessTakesOver": QueryStats._process_takes_over,
    "SupervisorEnds": QueryStats._supervisor_ends,
    "IncarnationFenced": QueryStats._fenced,
    "EpochBegan": QueryStats._epoch_began,
    "OlderRunsFenced": QueryStats._older_runs_fenced,
    "EpochDecided": QueryStats._epoch_decided,
    "EpochCompleted": QueryStats._epoch_completed,
    "EpochRedelivered": QueryStats._epoch_redelivered,
    "EpochAbandoned": QueryStats._epoch_abandoned,
    "DecidedFinished": QueryStats._decided_finished,
    "TransactionsExpired": QueryStats._expired,
    "TransactionsSalvaged": QueryStats._salvaged,
    "LeftoversSwept": QueryStats._swept,
    "RowsDeadLettered": QueryStats._dead_lettered,
    "RowsSkipped": QueryStats._skipped,
    "Progress": QueryStats._progress,
    "InputLag": QueryStats._lag,
    "UpstreamStalled": QueryStats._upstream_stalled,
    "UpstreamMoved": QueryStats._upstream_moved,
}
"""What each fact changes; those that are not here change no number."""


def add_bounded(values: list[T], new: T, most: int) -> None:
    values.append(new)
    if len(values) > most:
        del values[:-most]


def _partition(of: Mapping[str, Any]) -> str:
    return f"{of['topic']}-{int(of['partition'])}"
