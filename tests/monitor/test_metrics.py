"""A query's facts as numbers and as metrics: every event counts for something or is known to count for
nothing; what is shown, what is bounded, and what may go wrong around it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import prometheus_client
import pytest

import exactum
from exactum import events
from exactum.errors import SettingRefused
from exactum.monitor import metrics_server
from exactum.monitor.fact import SUPERVISOR_FACTS, Fact
from exactum.monitor.job_sources import ScriptJobs
from exactum.monitor.metrics import HEARD_MS, METRICS, PREFIX, MetricsCollector, metrics_handler
from exactum.monitor.query_stats import HANDLERS
from exactum.monitor.recorder import Recorder
from exactum.monitor.script_stats import QUERIES_MAX, ScriptStats
from exactum.monitor.words import sentence_of
from tests.kit.environment import ROOT
from tests.kit.errors import raised
from tests.kit.monitor.facts import QUERY, Story
from tests.kit.monitor.prometheus import get, samples
from tests.kit.python import python

NOW_MS = 1_800_000_000_000


class Told:
    """A ScriptStats that is told events as they come, and what a scrape of it shows. Its clock
    stands still.
    """

    def __init__(self) -> None:
        self.stats = ScriptStats()
        self._handler = metrics_handler(
            MetricsCollector(ScriptJobs(self.stats, with_history=False), lambda: 7)
        )

    def observe(self, event: events.Event, ago_s: float = 0.0) -> None:
        self.stats.observe(Fact.of(event, NOW_MS - round(ago_s * 1000)))

    def saw(self, name: str, query_id: str, **fields: Any) -> None:
        self.stats.observe(Fact(NOW_MS, name, {"query_id": query_id, **fields}))

    def begin(self, query_id: str, name: str | None, **more: Any) -> None:
        self.observe(started(query_id, name, **more))

    def scrape(self) -> dict[str, float]:
        text = self._handler(None).body.decode()  # type: ignore[arg-type]
        return {shown(name, labels): value for name, labels, value in samples(text)}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setattr(time, "time_ns", lambda: NOW_MS * 1_000_000)
    return Told()


def shown(name: str, labels: Any) -> str:
    inside = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return name.removeprefix(PREFIX) + (f"{{{inside}}}" if inside else "")


def started(query_id: str, name: str | None, *, run: str = "r1", **more: Any) -> events.RunStarted:
    return events.RunStarted(
        query_id, 0, f"i-{run}", run, name, "exactly once", "/data", (), (), 0, **more
    )


def completed(query_id: str, batch_id: int, rows: int = 10) -> events.EpochCompleted:
    phases = {"write": 20.0, "commit": 4.0}
    return events.EpochCompleted(query_id, batch_id, "i-r1", 0, 2, rows, phases, {"out": rows})


def test_an_epoch_in_numbers(told: Told) -> None:
    """Rows, transactions, phases, and for how long what is open may stay so."""
    told.begin("q1", "orders", timeouts_ms={"out": 60_000})
    told.observe(events.EpochBegan("q1", 3, "i-r1", 12), ago_s=10)
    at = told.scrape()
    assert at['batch_age_seconds{query="orders"}'] == 10
    assert at['timeout_remaining_seconds{query="orders",sink="out"}'] == 50
    told.observe(events.EpochDecided("q1", 3, "i-r1", 0, 2, 10), ago_s=5)
    at = told.scrape()
    assert at['in_doubt_transactions{query="orders"}'] == 2
    assert at['in_doubt_age_seconds{query="orders"}'] == 5
    told.observe(completed("q1", 3))
    at = told.scrape()
    assert at["events_dropped_total"] == 7  # on their way to the history, or to the supervisor
    assert (at['up{query="orders"}'], at['stopped{query="orders"}']) == (1, 0)
    assert at['verdict{query="orders",verdict="OK"}'] == 1
    assert sum(value for name, value in at.items() if name.startswith("verdict{")) == 1
    assert at['last_epoch{query="orders"}'] == 3
    assert at['rows_read_total{query="orders"}'] == 12
    assert at['rows_committed_total{query="orders",sink="out"}'] == 10
    assert at['transactions_total{query="orders",result="committed"}'] == 2
    assert at['epochs_total{outcome="committed",query="orders"}'] == 1
    assert at['epochs_total{outcome="abandoned",query="orders"}'] == 0
    assert at['in_doubt_age_seconds{query="orders"}'] == 0
    assert at['oldest_open_transaction_seconds{query="orders"}'] == 0
    assert at['timeout_remaining_seconds{query="orders",sink="out"}'] == 60
    buckets = 'epoch_phase_seconds_bucket{{le="{}",phase="write",query="orders"}}'
    assert (at[buckets.format("0.01")], at[buckets.format("0.025")]) == (0, 1)
    assert at[buckets.format("+Inf")] == at['epoch_seconds_count{query="orders"}'] == 1
    assert at['epoch_seconds_sum{query="orders"}'] == pytest.approx(0.024)
    told.observe(events.RunEnded("q1", 3, "i-r1", "", "", ""))
    at = told.scrape()
    assert (at['up{query="orders"}'], at['stopped{query="orders"}']) == (0, 1)


def test_a_dead_driver_leaves_its_series(told: Told) -> None:
    """Down, but not gone; what it left open goes on ageing until the next run has settled it; and
    what it could not tell is counted with its redelivery, once.
    """
    told.begin("q1", "orders", timeouts_ms={"out": 60_000})
    told.observe(completed("q1", 3))
    told.observe(events.EpochBegan("q1", 4, "i-r1", 5), ago_s=20)
    told.observe(events.EpochDecided("q1", 4, "i-r1", 0, 2, 7))
    told.saw("ProcessEnded", "q1", meaning="restart", error="", disposition="", text="SIGKILL")
    told.saw("ProcessRestarts", "q1", disposition="", delay_s=1.0)
    at = told.scrape()
    assert (at['up{query="orders"}'], at['stopped{query="orders"}']) == (0, 0)
    assert at['restarts_total{disposition="died",query="orders"}'] == 1
    assert at['in_doubt_transactions{query="orders"}'] == 2
    assert at['oldest_open_transaction_seconds{query="orders"}'] == 20
    told.observe(events.EpochBegan("q1", 4, "i-r2", 5))
    told.observe(events.EpochRedelivered("q1", 4, "i-r2", 0, 2, 7, {"out": 7}))
    told.observe(events.OlderRunsFenced("q1", 5, "i-r2", 0, 0))
    told.begin("q1", "orders", run="r2")
    at = told.scrape()
    assert at['epochs_total{outcome="redelivered",query="orders"}'] == 1
    assert at['runs_total{query="orders"}'] == 2
    for _ in range(2):  # a second start redelivers it as well
        told.observe(events.EpochRedelivered("q1", 4, "i-r2", 0, 2, 7, {"out": 7}))
        at = told.scrape()
        assert at['up{query="orders"}'] == 1
        assert at['rows_committed_total{query="orders",sink="out"}'] == 17
        assert at['rows_read_total{query="orders"}'] == 5
        assert at['transactions_total{query="orders",result="committed"}'] == 4
        assert at['in_doubt_age_seconds{query="orders"}'] == 0
        assert at['oldest_open_transaction_seconds{query="orders"}'] == 0


def test_counters_never_go_back(told: Told) -> None:
    """Whatever comes, in whatever order: deaths, restarts, redeliveries, another name."""
    before: dict[str, float] = {}
    story = [
        started("q1", "orders"),
        completed("q1", 1),
        events.EpochAbandoned("q1", 2, "i-r1", 0, "why"),
        started("q1", "orders", run="r2"),
        events.EpochRedelivered("q1", 1, "i-r2", 0, 1, 1),
        events.RowsSkipped("q1", 2, "i-r2", 3),
        completed("q1", 2),
        events.RunEnded("q1", 2, "i-r2", "Fenced", "fenced", "text"),
        started("q2", "orders"),
        completed("q2", 0, 1),
        started("q1", "orders", run="r3"),
        completed("q1", 3),
    ]
    for event in story:
        told.observe(event)
        at = {
            name: value
            for name, value in told.scrape().items()
            if name.split("{")[0].endswith(("_total", "_bucket", "_count", "_sum"))
        }
        fallen = {name for name in before if at.get(name, -1.0) < before[name]}
        assert not fallen, f"after {event}"
        before = at


def test_two_queries_of_one_name_are_two_series(told: Told) -> None:
    """Who has the name keeps it; the other one is told apart by its id."""
    for number, query_id in enumerate(("q1", "q2"), 1):
        told.begin(query_id, "orders")
        told.observe(completed(query_id, number))
    at = told.scrape()
    assert at['last_epoch{query="orders"}'] == 1
    assert at['last_epoch{query="orders (q2)"}'] == 2


def test_a_query_is_shown_once_its_name_is_known(told: Told) -> None:
    """Or, where its run does not begin, after a while by its id."""
    told.observe(events.EpochBegan("0123456789", 0, "i", None))
    assert not any("0123" in name for name in told.scrape())
    told.observe(events.EpochBegan("0123456789", 0, "i", None), ago_s=60)
    assert told.scrape()['up{query="01234567"}'] == 0
    told.begin("0123456789", None)
    assert told.scrape()['up{query="01234567"}'] == 1


def test_a_lag_of_long_ago_is_not_shown() -> None:
    """Not as a number that is so: a frozen or dead query would read as one that keeps up."""
    story = Story().starts().lag(0)
    shown = [m for m in METRICS if m.name in ("input_lag_records", "input_lag_seconds")]
    assert [m.of(story.stats, story.now_ms + HEARD_MS) for m in shown] == [{"in": 0}] * 2
    assert not any(m.of(story.stats, story.now_ms + HEARD_MS + 1) for m in shown)
    assert not any(m.of(story.ends().stats, story.now_ms) for m in shown)


def test_a_source_whose_lag_nobody_knows(told: Told) -> None:
    """It has no lag; that it has none is a series of its own, until it answers."""
    told.begin("q1", "orders")
    name = 'input_not_counted{query="orders",source="source 1 (not of Kafka)"}'
    told.observe(events.InputLag("q1", 1, "i-r1", "in", 1, 0, 0.0, 0, ("source 1 (not of Kafka)",)))
    assert told.scrape()[name] == 1
    told.observe(events.InputLag("q1", 1, "i-r1", "in", 1, 0, 0.0, 0))
    assert name not in told.scrape()


def test_every_metric_is_in_the_table_of_the_docs() -> None:
    """By its whole name, and nothing that is not there."""
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    wanted = {f"{one.name}_total" if one.is_counter else one.name for one in METRICS}
    wanted |= {
        "query_info",
        "epoch_phase_seconds",
        "epoch_seconds",
        "build_info",
        "events_dropped_total",
        "verdict",
    }
    wanted |= {"process_up", "process_silent_seconds", "process_restarts_total", "standby_ready"}
    documented = {
        cell.split("`")[1]
        for cell in (line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    }
    assert documented == wanted


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """In the place of this process's, which hears of other tests' queries: the end of one is told
    after its ``stop()`` has returned.
    """
    instead = Recorder()
    monkeypatch.setattr(metrics_server, "RECORDER", instead)
    monkeypatch.setattr(metrics_server, "JOBS", ScriptJobs(instead.stats, with_history=False))
    return instead


@pytest.fixture
def served(recorder: Recorder) -> Iterator[metrics_server.MetricsServer]:
    server = exactum.serve_metrics(port=0)
    yield server
    server.close()


def test_a_driver_serves_its_own(served: metrics_server.MetricsServer, recorder: Recorder) -> None:
    """What it hears is shown; the probes tell whether it works."""
    base = served.url.removesuffix("/metrics")
    assert get(f"{base}/livez") == (200, "lives\n")
    assert get(f"{base}/readyz") == (503, "No query has begun.\n")
    recorder.observe(started("q1", "orders"))
    recorder.observe(completed("q1", 7))
    text = get(served.url)[1]
    assert 'exactum_last_epoch{query="orders"} 7.0' in text
    assert "exactum_process_up" not in text
    assert get(f"{base}/readyz") == (200, "ready\n")
    recorder.observe(events.RunEnded("q1", 7, "i-r1", "Unavailable", "retry", "the broker is away"))
    said = "Query orders is DOWN. No process runs it. It ended with Unavailable"
    assert (found := get(f"{base}/readyz"))[0] == 503 and found[1].startswith(said)


def test_a_port_that_is_taken_is_said_at_the_call(served: metrics_server.MetricsServer) -> None:
    port = int(served.url.rsplit(":", 1)[1].split("/")[0])
    with raised(SettingRefused, "PORT_TAKEN", port):
        exactum.serve_metrics(port=port)
    with raised(SettingRefused, "COMMAND_ARGUMENT", "'9090'"):
        exactum.serve_metrics(port="9090")  # type: ignore[arg-type]


def test_a_registry_of_the_process_itself(recorder: Recorder) -> None:
    """The same there; registered twice is registered once."""
    registry = prometheus_client.CollectorRegistry()
    exactum.register_metrics(registry)
    exactum.register_metrics(registry)
    recorder.observe(started("q1", "orders"))
    text = prometheus_client.generate_latest(registry).decode()
    assert text.count('exactum_up{query="orders"} 1.0') == 1


@pytest.mark.parametrize("call", ["serve_metrics(port=0)", "register_metrics()"])
def test_without_the_extra(call: str) -> None:
    """It is said at the call, with what to type; nothing else of exactum needs it."""
    code = f"import sys; sys.modules['prometheus_client'] = None; import exactum; exactum.{call}"
    said = python(code, status=1).stderr
    assert "SettingRefused: [PACKAGE_MISSING] Metrics need the package prometheus-client" in said
    assert "pip install 'exactum[metrics]'" in said


WITHOUT_NUMBERS = {
    "ControlChanged",
    "FormerSinkOutOfReach",
    "ProcessStarted",
    "SupervisorEnds",
    "OperatorFenced",
}
"""They are in the log and in the history, and change no number."""
VALUES: dict[str, Any] = {
    "str": "text",
    "int": 3,
    "float": 2.5,
    "bool": True,
    "str | None": "text",
    "int | None": 3,
    "float | None": 2.5,
    "tuple[str | None, ...]": ("text",),
    "tuple[int, ...]": (3,),
    "tuple[str, ...]": ("text",),
    "dict[str, float]": {"write": 2.5},
    "dict[str, int]": {"kafka": 3},
    "dict[str, str]": {"in": "localhost:9092"},
    "dict[str, dict[str, float]]": {"kafka": {"commit": 2.5}},
}
EVENTS = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event
]


def an_event(kind: type[events.Event], *, bare: bool = False) -> events.Event:
    """With a value in each field; ``bare``: only in those that must be given."""
    given = {
        each.name: VALUES[str(each.type)]
        for each in fields(kind)
        if not bare or (each.default is MISSING and each.default_factory is MISSING)
    }
    return kind(**{**given, "query_id": QUERY})


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_every_event(
    kind: type[events.Event], bare: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is a line for a person, goes through the history, and changes a number or is known not
    to. One without the fields that have a default is taken, too.
    """
    event = an_event(kind, bare=bare)
    assert sentence_of(kind.__name__, vars(event))
    fact = Fact.from_line(Fact.of(event, 5).to_line())
    assert fact is not None
    stats = ScriptStats()
    with caplog.at_level(logging.WARNING, "exactum"):
        stats.observe(Fact(1, "Unheard", {"query_id": QUERY}))
        stats.observe(fact)
    assert caplog.text == ""
    assert stats.queries[QUERY].observed_ms == 5
    handled = kind.__name__ in HANDLERS
    assert handled != (kind.__name__ in WITHOUT_NUMBERS)


def test_every_supervisors_fact() -> None:
    unknown = {name for name in SUPERVISOR_FACTS if name not in HANDLERS}
    assert unknown <= WITHOUT_NUMBERS


def test_a_fact_that_lacks_a_field_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """It came from another version: the picture lacks it, and nothing else."""
    stats = ScriptStats()
    with caplog.at_level(logging.WARNING, "exactum"):
        stats.observe(Fact(1, "EpochCompleted", {"query_id": QUERY}))
        stats.observe(Fact(2, "RowsSkipped", {"query_id": QUERY, "rows": 4}))
    assert "EpochCompleted" in caplog.text
    assert stats.queries[QUERY].rows_skipped == 4


def test_queries_are_bounded() -> None:
    """Those heard of longest ago go, unless they run; facts of no query change nothing."""
    stats = ScriptStats()
    stats.observe(Fact(0, "RunStarted", {**Story().starts().facts[0].fields, "query_id": "runs"}))
    for number in range(QUERIES_MAX + 20):
        stats.observe(Fact(number, "RowsSkipped", {"query_id": f"q{number}", "rows": 1}))
    stats.observe(Fact(0, "RowsSkipped", {"rows": 1}))
    assert len(stats.queries) == QUERIES_MAX
    assert "runs" in stats.queries
    assert "q0" not in stats.queries
    assert f"q{QUERIES_MAX + 19}" in stats.queries
