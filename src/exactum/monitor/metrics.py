"""Queries as Prometheus metrics: what is measured of each, and how a scrape shows it. The only file
that imports prometheus_client, which ``exactum[metrics]`` brings.

One process serves: the supervisor, or a driver that has none. Nothing is counted here: each scrape
shows what ``ScriptStats`` holds. Each metric has the label ``query``: the query's name, or the
begin of its id. Other labels take few values: a query's sinks, its topics (bounded by
``QueryStats``), phases, outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    REGISTRY,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from exactum._version import __version__
from exactum.monitor.http_server import HttpHandler, HttpRequest, HttpResponse
from exactum.monitor.job import JobState
from exactum.monitor.job_sources import JobSource
from exactum.monitor.query_stats import (
    BUCKETS_S,
    OTHERS,
    TOPICS_MAX,
    WHOLE,
    Histogram,
    InputState,
    QueryStats,
)
from exactum.monitor.script_stats import ScriptState
from exactum.monitor.verdict import Verdict, judge

PREFIX = "exactum_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNNAMED_MS = 30_000
"""A query whose run does not begin has its id for a label after this time: until then its name may
still come.
"""
HEARD_MS = 30_000
"""A lag that was told longer ago is not shown: topics are looked at every few seconds."""
OUTCOMES = ("committed", "abandoned", "redelivered")
RESULTS = ("committed", "swept", "expired", "salvaged")
"""Values of labels that are there from the start, so that a first one is seen as an increase."""

Value = float | None | Mapping[str, float | None]
"""None where it is not known: then it is absent. Several are by a label."""


@dataclass(frozen=True)
class Metric:
    """``name`` is without ``PREFIX``, and that of a counter without ``_total``. ``of`` takes the
    query and the time in ms since 1970; where it has several values they are by ``label``, which
    stands beside the label ``query``.
    """

    name: str
    text: str
    of: Callable[[QueryStats, int], Value]
    label: str = ""
    is_counter: bool = False


def _counter(name: str, text: str, of: Callable[[QueryStats], Value], label: str = "") -> Metric:
    return Metric(name, text, lambda query, _: of(query), label, is_counter=True)


def _age(query: QueryStats, now_ms: int, since_ms: int | None) -> float:
    """Seconds since then; 0 where nothing is."""
    return 0.0 if since_ms is None else max(0.0, (now_ms - since_ms) / 1000)


def _seconds(at_ms: int | None) -> float | None:
    return None if at_ms is None else at_ms / 1000


def _open_seconds(query: QueryStats, now_ms: int) -> float | None:
    if query.guarantee not in (None, "exactly once"):
        return None
    return _age(query, now_ms, query.open_since_ms)


def _remaining(query: QueryStats, now_ms: int) -> Value:
    age_s = _age(query, now_ms, query.open_since_ms)
    return {sink: limit_ms / 1000 - age_s for sink, limit_ms in query.timeouts_ms.items()}


def _observed_lately(query: QueryStats, now_ms: int) -> dict[str, InputState]:
    """The lags that are still so: none of a query that does not run, or is frozen."""
    if not query.is_running:
        return {}
    return {of: at for of, at in query.inputs.items() if now_ms - at.at_ms <= HEARD_MS}


def _stalled(query: QueryStats, now_ms: int) -> Value:
    held = dict.fromkeys(query.inputs, 0)
    for of in query.stalled.values():
        topic = str(of["topic"])
        known = topic if topic in held or len(held) < TOPICS_MAX else OTHERS
        held[known] = held.get(known, 0) + 1
    return held


def _watermark_lag(query: QueryStats, now_ms: int) -> float | None:
    try:
        text = (query.event_time_watermark or "").replace("Z", "+00:00")
        watermark = datetime.fromisoformat(text)
    except ValueError:
        return None
    if watermark.tzinfo is None:
        watermark = watermark.replace(tzinfo=timezone.utc)
    at_s = watermark.timestamp()
    return None if at_s <= 0 else max(0.0, now_ms / 1000 - at_s)  # 1970: none was seen yet


METRICS = (
    Metric("up", "1 while a run of the query lives.", lambda q, _: q.is_running),
    Metric(
        "stopped",
        "1 where the query was stopped, or had read all that it was to read.",
        lambda q, _: q.has_stopped,
    ),
    _counter("runs", "Runs of the query that began.", lambda q: q.runs),
    _counter(
        "restarts",
        "Restarts and takeovers, by the disposition of the error before (died: by no error).",
        lambda q: {"died": 0, **q.restarts},
        "disposition",
    ),
    _counter(
        "epochs",
        "Micro-batches that were committed, abandoned, or redelivered by a later run.",
        lambda q: {**dict.fromkeys(OUTCOMES, 0), **q.epochs},
        "outcome",
    ),
    Metric("last_epoch", "The micro-batch that was completed last.", lambda q, _: q.epoch),
    Metric(
        "run_timestamp_seconds",
        "When the run at hand began.",
        lambda q, _: _seconds(q.run_began_ms),
    ),
    Metric(
        "last_decision_timestamp_seconds",
        "When a commit was recorded last.",
        lambda q, _: _seconds(q.last_decision_ms),
    ),
    Metric(
        "last_commit_timestamp_seconds",
        "When every sink had acknowledged a commit last.",
        lambda q, _: _seconds(q.last_commit_ms),
    ),
    Metric(
        "batch_age_seconds",
        "Age of the micro-batch at hand; 0 between two.",
        lambda q, now_ms: _age(q, now_ms, None if q.at_hand is None else q.at_hand.since_ms),
    ),
    _counter(
        "rows_read",
        "Kafka offsets read by committed micro-batches; control markers count too.",
        lambda q: q.rows_read,
    ),
    _counter("rows_committed", "Rows committed, by sink.", lambda q: q.rows_by_sink, "sink"),
    _counter(
        "transactions",
        "Transactions committed; swept (aborted, undecided); expired (undone outside); salvaged.",
        lambda q: {**dict.fromkeys(RESULTS, 0), **q.transactions},
        "result",
    ),
    Metric(
        "in_doubt_transactions",
        "Decided transactions that are not known to stand in every sink.",
        lambda q, _: 0 if q.in_doubt is None else q.in_doubt.transactions,
    ),
    Metric(
        "in_doubt_age_seconds",
        "Since when they are decided; 0 where there are none.",
        lambda q, now_ms: _age(q, now_ms, None if q.in_doubt is None else q.in_doubt.since_ms),
    ),
    Metric(
        "oldest_open_transaction_seconds",
        "For how long transactions may be open, also of a dead driver; 0: none.",
        _open_seconds,
    ),
    Metric(
        "timeout_remaining_seconds",
        "Time until the target may abort what is open; the whole timeout where nothing is.",
        _remaining,
        "sink",
    ),
    Metric(
        "transaction_timeout_seconds",
        "How long the target lets a transaction be open.",
        lambda q, _: {sink: limit_ms / 1000 for sink, limit_ms in q.timeouts_ms.items()},
        "sink",
    ),
    Metric(
        "input_lag_records",
        "Offsets that could be read and do not stand in the sinks.",
        lambda q, now_ms: {of: at.lag_records for of, at in _observed_lately(q, now_ms).items()},
        "topic",
    ),
    Metric(
        "input_lag_seconds",
        "For how long the oldest of them could have been read.",
        lambda q, now_ms: {of: at.lag_seconds for of, at in _observed_lately(q, now_ms).items()},
        "topic",
    ),
    Metric(
        "input_not_counted",
        "1 for each source whose lag nobody knows.",
        lambda q, _: {source: 1 for source in q.not_counted if q.is_running},
        "source",
    ),
    Metric(
        "input_lso_gap_records",
        "Offsets hidden behind open transactions upstream.",
        lambda q, _: {topic: at.lso_gap_records for topic, at in q.inputs.items()},
        "topic",
    ),
    Metric(
        "upstream_stalled",
        "Partitions that an open transaction upstream holds back.",
        _stalled,
        "topic",
    ),
    _counter(
        "rows_dead_lettered", "Rows put into the dead letters.", lambda q: q.rows_dead_lettered
    ),
    _counter(
        "rows_skipped",
        "Records skipped because they could not be decoded.",
        lambda q: q.rows_skipped,
    ),
    _counter(
        "fenced",
        "Times that a newer run took the query over from the one at hand.",
        lambda q: q.fenced,
    ),
    Metric("state_rows", "Rows in Spark's state stores.", lambda q, _: q.state_rows),
    Metric("state_bytes", "Bytes of Spark's state stores in memory.", lambda q, _: q.state_bytes),
    Metric(
        "watermark_lag_seconds",
        "How far the event-time watermark is behind the clock.",
        _watermark_lag,
    ),
)
"""And ``query_info``, the verdict and the phases: see ``MetricsCollector.collect``."""


# ---- a scrape ------------------------------------------------------------------------------------


class MetricsCollector(Collector):
    """The queries of ``source``. ``dropped`` says how many events were lost on the way to it,
    ``script`` what a supervisor sees of its processes (None: there is none).
    """

    def __init__(
        self,
        source: JobSource,
        dropped: Callable[[], int],
        script: Callable[[], ScriptState] | None = None,
    ) -> None:
        self._source = source
        self._dropped = dropped
        self._script = script
        self._labels = _QueryLabels()

    def describe(self) -> Iterable[Family]:
        """Nothing: what there is depends on the queries."""
        return ()

    def collect(self) -> Iterator[Family]:
        families = [(metric, _family(metric)) for metric in METRICS]
        info = GaugeMetricFamily(
            f"{PREFIX}query_info",
            "Which query and run this is; always 1.",
            labels=("query", "id", "run", "incarnation", "guarantee"),
        )
        phases = HistogramMetricFamily(
            f"{PREFIX}epoch_phase_seconds", "Phases of micro-batches.", labels=("query", "phase")
        )
        whole = HistogramMetricFamily(
            f"{PREFIX}epoch_seconds", "All phases of a micro-batch.", labels=("query",)
        )
        verdict = GaugeMetricFamily(
            f"{PREFIX}verdict", "1 for what the query is judged to be.", labels=("query", "verdict")
        )

        def add(job: JobState, label: str) -> None:
            query = job.stats
            run = (query.run_id or "", query.incarnation or "", query.guarantee or "")
            info.add_metric((label, query.query_id, *run), 1)
            for metric, family in families:
                for values, value in _samples(metric.of(query, job.at_ms)).items():
                    family.add_metric((label, *values), value)
            for phase, histogram in query.phase_seconds.items():
                if phase == WHOLE:
                    whole.add_metric((label,), _buckets(histogram), histogram.sum_s)
                else:
                    phases.add_metric((label, phase), _buckets(histogram), histogram.sum_s)
            found = judge(job).verdict
            for each in Verdict:
                verdict.add_metric((label, each.value), each is found)

        jobs = self._source.jobs()
        for query_id, label in self._labels.of(jobs).items():
            add(jobs[query_id], label)
        yield info
        yield from (family for _, family in families)
        yield from (phases, whole, verdict)
        yield from self._of_the_process()

    def _of_the_process(self) -> Iterator[Family]:
        build = GaugeMetricFamily(f"{PREFIX}build_info", "Always 1.", labels=("version",))
        build.add_metric((__version__,), 1)
        yield build
        dropped, name = self._dropped(), f"{PREFIX}events_dropped"
        script = None if self._script is None else self._script()
        if script is not None:
            dropped += script.dropped
        yield CounterMetricFamily(name, "Events lost on their way here.", value=dropped)
        if script is None:
            return
        yield GaugeMetricFamily(
            f"{PREFIX}process_up",
            "1 while the script's process lives.",
            value=script.pid is not None,
        )
        yield CounterMetricFamily(
            f"{PREFIX}process_restarts",
            "Restarts and takeovers of the script.",
            value=script.restarts,
        )
        if script.silent_s is not None:
            yield GaugeMetricFamily(
                f"{PREFIX}process_silent_seconds",
                "For how long nothing was heard of the process; it beats twice a second.",
                value=script.silent_s,
            )
        if script.has_standby is not None:
            yield GaugeMetricFamily(
                f"{PREFIX}standby_ready", "1 while a standby waits.", value=script.has_standby
            )


class _QueryLabels:
    """The label of each query: its name, or where another query has that one, also its id.

    Who has a name keeps it as long as he is known, so no series ever becomes another query's.
    """

    def __init__(self) -> None:
        self._labels: dict[str, tuple[str, str]] = {}  # by query: its name, and its label

    def of(self, jobs: Mapping[str, JobState]) -> dict[str, str]:
        """The queries that are shown, with their labels."""
        self._labels = {i: kept for i, kept in self._labels.items() if i in jobs}
        for query_id, job in jobs.items():
            query = job.stats
            if not _is_shown(query, job.at_ms):
                continue
            known = self._labels.get(query_id)
            if known is None or known[0] != query.label:
                taken = {label for i, (_, label) in self._labels.items() if i != query_id}
                label = query.label
                if label in taken:
                    label = f"{query.label} ({query_id})"
                self._labels[query_id] = query.label, label
        return {query_id: label for query_id, (_, label) in self._labels.items()}


def _is_shown(query: QueryStats, now_ms: int) -> bool:
    return query.run_id is not None or (
        query.at_hand is not None and now_ms - query.at_hand.since_ms > UNNAMED_MS
    )


def _family(metric: Metric) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
    labels = ("query", metric.label) if metric.label else ("query",)
    return kind(f"{PREFIX}{metric.name}", metric.text, labels=labels)


def _samples(value: Value) -> dict[tuple[str, ...], float]:
    """What is known, by the values of the labels besides ``query``."""
    each: Mapping[tuple[str, ...], float | None] = (
        {(of,): one for of, one in value.items()} if isinstance(value, Mapping) else {(): value}
    )
    return {labels: float(one) for labels, one in each.items() if one is not None}


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*(repr(bound) for bound in BUCKETS_S), "+Inf"]
    return [*zip(bounds, map(float, accumulate(histogram.counts)), strict=True)]


def metrics_handler(collector: Collector) -> HttpHandler:
    """Serves ``collector``, and nothing else, in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(collector)

    def handle(request: HttpRequest) -> HttpResponse:
        return HttpResponse(generate_latest(registry), CONTENT_TYPE)

    return handle


def default_registry() -> CollectorRegistry:
    """That of prometheus_client for the process."""
    return REGISTRY
