"""Queries as Prometheus metrics. The only file that imports prometheus_client, which
``exactum[metrics]`` brings.

One process serves: the supervisor, or a driver that has none. Nothing is counted here: each scrape
shows what ``ScriptStats`` holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
from exactum.monitor.metric_table import METRICS, PREFIX, Metric
from exactum.monitor.query_stats import BUCKETS_S, WHOLE, Histogram, QueryStats
from exactum.monitor.script_stats import ScriptState
from exactum.monitor.verdict import Verdict, judge

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNNAMED_MS = 30_000
"""A query whose run does not begin has its id for a label after this time: until then its name may
still come.
"""


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
            for metric, family in families:
                for values, value in metric.of(query, job.at_ms):
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
    return kind(f"{PREFIX}{metric.name}", metric.text, labels=("query", *metric.labels))


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
