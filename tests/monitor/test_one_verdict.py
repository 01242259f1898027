"""A query has one verdict, wherever somebody asks: the command, the page, the page and the probe of
``exactum run``, the metric, and a driver's own metrics and probe.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from exactum.monitor import job_sources
from exactum.monitor.fact import Fact
from exactum.monitor.http_server import HttpHandler, HttpRequest
from exactum.monitor.job import read_job
from exactum.monitor.job_sources import CheckpointJobs, JobSource, ScriptJobs
from exactum.monitor.metrics import MetricsCollector, metrics_handler
from exactum.monitor.metrics_server import probes
from exactum.monitor.script_stats import ScriptStats
from exactum.monitor.verdict import Judgement, judge
from exactum.ops.cli import main
from exactum.ops.dashboard.routes import dashboard_routes
from tests.kit.monitor.facts import QUERY, Story
from tests.kit.monitor.made_checkpoint import Checkpoint, ago
from tests.kit.monitor.prometheus import samples
from tests.kit.monitor.verdict_cases import CASES, fine, stopped

pytestmark = pytest.mark.usefixtures("still_clock")


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_sources, "FRESH_S", 0.0)


@pytest.fixture
def alive() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("name", CASES)
def test_one_verdict(name: str, tmp_path: Path, alive: ExitStack) -> None:
    """Its word everywhere, and its reason wherever there is room for one."""
    case, lives, word = CASES[name]
    made = Checkpoint(tmp_path / "orders")
    story, last = case(made.folder)
    made.spark(last, last).tells(story)
    if word == "IN DOUBT":
        made.spark(last + 1, last).commit(last + 1, age_s=60)
    if lives:
        alive.enter_context(made.alive(story.stats.incarnation or ""))
    stats = heard(story)
    sources: dict[str, JobSource] = {
        "dashboard": CheckpointJobs([made.folder]),
        "run": ScriptJobs(stats, with_history=True),
        "driver": ScriptJobs(stats, with_history=False),
    }
    found = judge(read_job(made.folder))
    assert found.verdict.value == word, found
    command = CliRunner().invoke(main, ["status", "--json", "--checkpoint", str(made.folder)])
    (query,) = json.loads(command.output)["queries"]
    assert (query["verdict"], query["reason"], query["todo"]) == shown(found)
    assert command.exit_code == (0 if found.verdict.is_working else 1)
    for where, source in sources.items():
        assert said_by_page(source) == shown(found), where
        assert said_by_metric(source) == word, where
        is_ready = answer(probes(source)["/readyz"]) == "ready\n"
        assert is_ready == (found.verdict.is_working or name == "was stopped"), where


def heard(story: Story) -> ScriptStats:
    stats = ScriptStats()
    for fact in story.facts:
        stats.observe(fact)
    return stats


def shown(found: Judgement) -> tuple[str, str, str]:
    return found.verdict.value, found.reason, found.todo


def answer(handler: HttpHandler, path: str = "/") -> str:
    return handler(HttpRequest(path)).body.decode()


def said_by_page(source: JobSource) -> tuple[str, str, str]:
    """By the JSON, whose words the HTML has as well."""
    routes = dashboard_routes(source)
    value = json.loads(answer(routes["/job/"], f"/job/{QUERY}.json"))
    assert f">{value['verdict']}<" in answer(routes["/job/"], f"/job/{QUERY}")
    assert f">{value['verdict']}<" in answer(routes["/"])
    return value["verdict"], value["reason"], value["todo"]


def said_by_metric(source: JobSource) -> str:
    text = answer(metrics_handler(MetricsCollector(source, lambda: 0)))
    found = [
        at["verdict"]
        for name, at, value in samples(text)
        if name == "exactum_verdict" and value == 1
    ]
    (word,) = found
    return word


def test_what_an_operator_finished_is_finished_everywhere(tmp_path: Path) -> None:
    """The supervisor has heard of a decision and of no more: the history says who carried it
    out.
    """
    made = Checkpoint(tmp_path / "orders").spark(10, 9)
    story, _ = fine(made.folder)
    made.tells(story.begins(10).decides(10).dies())
    stats = heard(story)
    run = ScriptJobs(stats, with_history=True)
    assert said_by_page(run)[0] == "IN DOUBT"
    made.tells(ago(0).finished(10))
    assert said_by_page(run)[0] == "DOWN"
    assert judge(read_job(made.folder)).verdict.value == "DOWN"


@pytest.mark.parametrize("dies", [False, True])
def test_an_end_that_was_written_and_not_told(tmp_path: Path, dies: bool) -> None:
    """A driver writes down how a run ended before it lets go of its lock. What it says of that to
    its supervisor comes later, or not at all where the process ends at once.
    """
    made = Checkpoint(tmp_path / "orders").spark(9, 9)
    story, _ = stopped(made.folder)
    told = heard(story)
    made.tells(story)
    lost = ScriptStats()
    for fact in story.facts[:-1]:
        lost.observe(fact)
    if dies:
        end = Story().dies("done", text="it ended by itself").facts[0]
        lost.observe(Fact(story.now_ms, end.name, end.fields))
    for stats in (told, lost):
        source = ScriptJobs(stats, with_history=True)
        _, reason, todo = said_by_page(source)
        assert reason == "It was stopped; nothing failed."
        assert todo.endswith("just starting is seen here once its query begins.")
        assert answer(probes(source)["/readyz"]) == "ready\n"


def test_a_query_of_which_no_run_is_known_has_a_name() -> None:
    """It told something before its run began: its id has to do."""
    stats = heard(Story().begins(3).dies())
    (line,) = answer(probes(ScriptJobs(stats, with_history=True))["/readyz"]).splitlines()
    assert line.startswith(f"Query {QUERY[:8]} is DOWN.")


def test_an_older_fact_of_another_process_comes_late(tmp_path: Path) -> None:
    """How a run ended is known at once, though its line waits for an older one."""
    made = Checkpoint(tmp_path / "c").spark(5, 4).commit(5)
    made.tells(ago(90).starts().after(10).completes(4))
    source = CheckpointJobs([made.folder])
    assert [judge(job).verdict.value for job in source.jobs().values()] == ["IN DOUBT"]
    made.spark(5, 5).tells(ago(0.1).starts(ends=True).after(0.1).ends(has_read_all=True))
    assert [judge(job).verdict.value for job in source.jobs().values()] == ["OK"]
