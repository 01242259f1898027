"""The alert rules and the dashboard, on a real Prometheus that scrapes a real query while it is
killed and frozen. A minute of the rules lasts a second here (``shortened``).
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from exactum.local import LocalKafka
from tests.conftest import TopicFactory
from tests.kit.crash import oracle
from tests.kit.monitor.fed_query import Fed, base_url
from tests.kit.monitor.prometheus import (
    RULES,
    Prometheus,
    dashboard_queries,
    get,
    names,
    promtool,
    shortened,
)
from tests.kit.monitor.rule_cases import CASES, unit_tests
from tests.kit.run.run_command import Command


@pytest.mark.deep
def test_the_rules_by_promtool(tmp_path: Path) -> None:
    """They are well-formed, and each fires when it should and is quiet when not, over an hour of
    made-up series.
    """
    promtool("check", "rules", RULES)
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps(unit_tests()))
    promtool("test", "rules", path)
    tested = {alert for _, _, firing in CASES for alert in firing}
    assert tested == set(names(RULES.read_text()))


def test_a_minute_lasts_a_second() -> None:
    """How the rules are shortened for the tests below: durations and ages, and nothing else."""
    text = "for: 2m\nx[15m] > 0 or y offset 1h\nfor: 30s\nage > 600 and beat > 15\n0.25 * z > 2.5"
    short = "for: 2000ms\nx[15000ms] > 0 or y offset 60000ms\nfor: 500ms\nage > 10 and beat > 15\n"
    assert shortened(text) == f"{short}0.25 * z > 2.5"
    assert len(names(shortened(RULES.read_text()))) == len(names(RULES.read_text()))


@contextmanager
def watching(folder: Path, run: Command) -> Iterator[Prometheus]:
    rules = shortened(RULES.read_text())
    target = base_url(run).removeprefix("http://")
    with Prometheus(folder / "prometheus", target, rules) as prometheus:
        yield prometheus


# ---- a real query --------------------------------------------------------------------------------


@pytest.fixture
def fed(kafka: LocalKafka, topic: TopicFactory, tmp_path: Path) -> Fed:
    numbers, out = topic("numbers", partitions=2), topic("out", partitions=2)
    return Fed(kafka, tmp_path, numbers, out, topic("dead", partitions=1))


STATELESS = {"exactum_state_rows", "exactum_state_bytes", "exactum_watermark_lag_seconds"}
NOT_THERE = {"exactum_standby_ready"}


def check_dashboard(prometheus: Prometheus) -> None:
    """Each query of the dashboard finds something, but for what this query does not have."""
    for panel, queries in dashboard_queries().items():
        for query in queries:
            if any(name in query for name in STATELESS | NOT_THERE):
                assert prometheus.query(query) == [], f"{panel}: {query}"
            else:
                prometheus.until(lambda q=query: prometheus.query(q), f"{panel}: {query}")  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.deep
def test_a_query_that_is_held_back_frozen_and_killed(fed: Fed) -> None:
    """Quiet while all is well; each trouble has its alert, which ends when the trouble does; and
    what came out is exact.
    """
    options = ["--restart-attempts", "5", "--restart-delay", "5 s", "--restart-delay-max", "5 s"]
    with fed.run(options) as run, watching(fed.folder, run) as prometheus:
        base = base_url(run)
        with fed.growing():
            assert get(f"{base}/readyz")[0] == 503
            until_it_works(prometheus)
            assert get(f"{base}/readyz") == (200, "ready\n")
            check_dashboard(prometheus)
            prometheus.until_quiet()
            fed.send("no number")
            prometheus.until_firing("ExactumDeadLetters")
            assert any("watched" in text for text in prometheus.texts())

            with fed.behind_open_transactions():
                prometheus.until_firing("ExactumUpstreamHeld")
            prometheus.until_quiet("ExactumUpstreamHeld")
            assert prometheus.firing() <= {"ExactumDeadLetters"}

            rows = prometheus.value("sum(exactum_rows_committed_total)") or 0
            driver = run.pids()[-1]
            fed.freeze()
            prometheus.until_firing("ExactumInDoubt", "ExactumTimeoutNear", "ExactumSilent")
            prometheus.until_firing("ExactumStalled")
            assert get(f"{base}/livez")[0] == 200
            assert f"Process {driver} has not been heard of" in get(f"{base}/readyz")[1]
            assert not prometheus.firing() & {
                "ExactumDown",
                "ExactumExpired",
                "ExactumUpstreamHeld",
                "ExactumDeadLetters",
            }
            late = "min(exactum_timeout_remaining_seconds) < -3"
            prometheus.until(lambda: prometheus.query(late), "Kafka has aborted what was decided")
            judged = 'exactum_verdict{verdict=~"IN DOUBT|STALLED"} == 1'
            prometheus.until(lambda: prometheus.query(judged), "the verdict says so, too")
            run.signal_session(driver, signal.SIGKILL)
            prometheus.until_firing("ExactumDown")
            assert prometheus.value("exactum_process_up") == 0
            prometheus.until_firing("ExactumExpired", "ExactumSalvaged")
        prometheus.until_quiet(
            "ExactumDown", "ExactumSilent", "ExactumInDoubt", "ExactumTimeoutNear", "ExactumStalled"
        )
        assert (prometheus.value("sum(exactum_rows_committed_total)") or 0) > rows
        assert prometheus.query("resets(exactum_runs_total[10m]) > 0") == []
        assert prometheus.value("exactum_process_restarts_total") == 1
        assert prometheus.firing() <= {"ExactumExpired", "ExactumSalvaged"}
        assert come_out(fed, run) == sorted(range(fed.sent))


def until_it_works(prometheus: Prometheus) -> None:
    prometheus.until(lambda: prometheus.value("exactum_up") == 1, "the query runs")
    prometheus.until(lambda: (prometheus.value("exactum_last_epoch") or 0) > 2, "it works")


def come_out(fed: Fed, run: Command) -> list[int]:
    """What a reader sees once everything has come out and the query is stopped."""
    run.until(lambda: len(came_out(fed)) >= fed.sent, "everything has come out")
    run.signal(signal.SIGTERM)
    assert run.ends() == 0
    return came_out(fed)


def came_out(fed: Fed) -> list[int]:
    seen = oracle.read_all(fed.kafka.bootstrap_servers, [fed.target])
    return sorted(int(one.value or -1) for one in seen)


@pytest.mark.deep
@pytest.mark.slow
def test_a_query_that_falls_behind_and_a_standby(fed: Fed) -> None:
    """A lag that grows is told from one that shrinks; a standby is missed until it is ready; a
    takeover ends what a frozen driver began.
    """
    slow = {"trigger": "1 second", "max_offsets": 3}
    with fed.run(["--standby"], **slow) as run, watching(fed.folder, run) as prometheus:
        with fed.growing():
            prometheus.until_firing("ExactumStandbyMissing")
            until_it_works(prometheus)
            prometheus.until_firing("ExactumLagGrowing")
            prometheus.until_quiet("ExactumStandbyMissing")
            assert prometheus.value("exactum_standby_ready") == 1
        prometheus.until_quiet("ExactumLagGrowing")  # it catches up
        run.signal_session(run.pids()[0], signal.SIGSTOP)
        prometheus.until(
            lambda: prometheus.query("exactum_restarts_total == 1"), "the standby takes over"
        )
        prometheus.until(lambda: prometheus.value("exactum_up") == 1, "and works")
        prometheus.until_quiet("ExactumDown")  # three seconds are an outage here
        assert not prometheus.firing() & {"ExactumSilent", "ExactumStalled", "ExactumInDoubt"}
        run.signal(signal.SIGTERM)
        assert run.ends() == 0
    seen = came_out(fed)  # as far as it got
    assert seen == sorted({*seen} & {*range(fed.sent)})


# ---- what needs no Spark -------------------------------------------------------------------------

RESTLESS = """
import sys, time
import exactum
from exactum.spark.supervised import process

life = process.current()

def tell(kind, *values):
    life.report_event(getattr(exactum.events, kind)("q", *values))

life.report_run("q")
tell("RunStarted", 0, "i", "r", "restless", "exactly once", "c", (), (), 0)
tell("EpochBegan", 0, "i", 1)
tell("EpochCompleted", 0, "i", 0, 1, 1, {"write": 1.0}, {"out": 1})
if "fenced" in sys.argv:
    tell("IncarnationFenced", 1, "i", 0, "another")
if "flood" in sys.argv:
    text = "x" * 10_000
    while True:
        tell("EpochAbandoned", 1, "i", 0, text)
        time.sleep(0.001)
time.sleep(0.5 if "dies" in sys.argv else 600)
sys.exit(1)
"""


def restless(folder: Path, *arguments: str, options: Sequence[str] = ()) -> Command:
    folder.mkdir(exist_ok=True)
    (folder / "app.py").write_text(RESTLESS)
    return Command(folder, folder / "app.py", ["--listen", "0", *options], arguments)


@pytest.mark.deep
@pytest.mark.slow
def test_a_crash_loop_and_a_takeover_by_others(tmp_path: Path) -> None:
    """What a script without Spark can show of a real supervisor."""
    options = ["--restart-attempts", "99", "--restart-delay-max", "1 s"]
    with restless(tmp_path, "fenced", "dies", options=options) as run:
        with watching(tmp_path, run) as prometheus:
            prometheus.until_firing("ExactumRestarting", "ExactumFenced")
            assert not prometheus.firing() & {"ExactumNotScraped", "ExactumStandbyMissing"}
            run.signal(signal.SIGTERM)
            assert run.ends() == 0
            prometheus.until_firing("ExactumNotScraped")


@pytest.mark.deep
@pytest.mark.slow
def test_a_supervisor_that_is_frozen_loses_events_and_says_so(tmp_path: Path) -> None:
    """Nothing answers while it is; then what could not be told to it is counted, and the standby
    that never gets ready is missed.
    """
    with restless(tmp_path, "flood", options=["--standby"]) as run:
        with watching(tmp_path, run) as prometheus:
            prometheus.until(lambda: prometheus.value("exactum_up") == 1, "the query runs")
            prometheus.until_firing("ExactumStandbyMissing", "ExactumAttemptsFail")
            assert not prometheus.firing() & {"ExactumNotScraped", "ExactumEventsDropped"}
            run.signal(signal.SIGSTOP)
            prometheus.until_firing("ExactumNotScraped")
            run.signal(signal.SIGCONT)
            prometheus.until_firing("ExactumEventsDropped")
            prometheus.until_quiet("ExactumNotScraped")
