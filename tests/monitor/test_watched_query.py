"""The alert rules, the dashboard and the page, on a real Prometheus and in a real browser, of a real
query that is held back, frozen and killed. A minute of the rules lasts a second here (``shortened``).
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.crash import oracle
from tests.kit.dashboard.browser import chromium, tab
from tests.kit.kafka.broker import Broker
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
from tests.kit.process_tree import signal_session
from tests.kit.run.run_command import Command
from tests.kit.waiting import WAIT_MAX_S


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
def fed(broker: Broker, tmp_path: Path) -> Fed:
    source, out = oracle.Input(broker.topic("numbers", partitions=2)), broker.topic("out", 2)
    return Fed(broker.servers, tmp_path, source, [out], broker.topic("dead", 1))


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
def test_a_query_that_is_held_back_frozen_and_killed(fed: Fed, broker: Broker) -> None:
    """Quiet while all is well; each trouble has its alert, which ends when the trouble does. The page
    follows without being loaded again, and outlives the driver. What came out is exact.
    """
    options = ["--restart-attempts", "5", "--restart-delay", "5 s", "--restart-delay-max", "5 s"]
    with (
        chromium() as browser,
        fed.watched(options) as run,
        watching(fed.folder, run) as prometheus,
    ):
        base, seen = base_url(run), tab(browser)
        seen.page.goto(base)
        assert "No query has begun" in seen.page.inner_text("main")
        with fed.growing():
            assert get(f"{base}/readyz")[0] == 503
            until_it_works(prometheus)
            assert get(f"{base}/readyz") == (200, "ready\n")
            seen.until(lambda: "OK" in seen.page.inner_text("main"), "the query works")
            seen.page.click("text=watched")
            seen.until(lambda: seen.page.locator("canvas").count() == 4, "four plots are drawn")
            loads = seen.loads
            check_dashboard(prometheus)
            prometheus.until_quiet()
            broker.produce(fed.source.topic, "no number")
            prometheus.until_firing("ExactumDeadLetters")
            assert any("watched" in text for text in prometheus.texts())
            letters = "put into the dead letters"
            seen.until(lambda: letters in seen.page.inner_text("main"), "dead letters")

            foreign, row = f"foreign-{fed.source.topic}", b'{"n": -1}'
            upstream = broker.transaction(foreign, fed.source.topic, row, row)
            prometheus.until_firing("ExactumUpstreamHeld")
            seen.until(lambda: seen.badge() == "HELD UPSTREAM", "held upstream")
            assert f"id {foreign}" in seen.page.inner_text("main")
            upstream.abort_transaction(WAIT_MAX_S)
            prometheus.until_quiet("ExactumUpstreamHeld")
            assert prometheus.firing() <= {"ExactumDeadLetters"}

            rows = prometheus.value("sum(exactum_rows_committed_total)") or 0
            driver = run.pids()[-1]
            fed.freeze()
            prometheus.until_firing("ExactumInDoubt", "ExactumTimeoutNear", "ExactumSilent")
            prometheus.until_firing("ExactumStalled")
            assert get(f"{base}/livez")[0] == 200
            assert f"Process {driver} has not been heard of" in get(f"{base}/readyz")[1]
            ended = {"ExactumDown", "ExactumExpired", "ExactumUpstreamHeld", "ExactumDeadLetters"}
            assert not prometheus.firing() & ended
            late = "min(exactum_timeout_remaining_seconds) < -3"
            prometheus.until(lambda: prometheus.query(late), "Kafka has aborted what was decided")
            judged = 'exactum_verdict{verdict=~"IN DOUBT|STALLED"} == 1'
            prometheus.until(lambda: prometheus.query(judged), "the verdict says so, too")
            seen.until(lambda: seen.badge() in ("IN DOUBT", "STALLED"), "decided and frozen")
            signal_session(driver, signal.SIGKILL)
            prometheus.until_firing("ExactumDown")
            assert prometheus.value("exactum_process_up") == 0
            prometheus.until_firing("ExactumExpired", "ExactumSalvaged")
        prometheus.until_quiet("ExactumDown", "ExactumSilent", "ExactumInDoubt", "ExactumStalled")
        prometheus.until_quiet("ExactumTimeoutNear")
        assert (prometheus.value("sum(exactum_rows_committed_total)") or 0) > rows
        assert prometheus.query("resets(exactum_runs_total[10m]) > 0") == []
        assert prometheus.value("exactum_process_restarts_total") == 1
        assert prometheus.firing() <= {"ExactumExpired", "ExactumSalvaged"}
        seen.until(lambda: seen.badge() == "OK", "it was started again")
        assert "SIGKILL" in seen.page.inner_text("#h-failures ~ .timeline")
        timeline, begins = seen.page.locator("#h-runs ~ .timeline"), "A run begins at micro-batch"
        seen.until(lambda: timeline.inner_text().count(begins) == 2, "the second run")
        assert f"Process {driver} ended" in timeline.inner_text()
        assert re.search(r"Restarts, takeovers\s+1, 0", seen.page.inner_text("main"))
        assert seen.loads == loads, "the page was never loaded again"
        seen.check_sound()
        assert come_out(fed, run) == sorted(range(fed.sent))
        seen.until(lambda: "no answer" in seen.page.inner_text("#fresh-text"), "nobody answers")
        assert "watched" in seen.page.inner_text("main"), "what was seen last stays"


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
    seen = oracle.read_all(fed.bootstrap_servers, fed.outputs)
    return sorted(int(one.value or -1) for one in seen)
