"""Each verdict, word for word, wherever it is shown: in a pipe, on a terminal, as JSON, as metrics, and
on the page.

With EXACTUM_OUTPUT=1 the files of tests/kit/monitor/output are made anew; read what changed in them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner

import exactum
from exactum.monitor import job_sources
from exactum.monitor.http_server import HttpRequest
from exactum.monitor.job_sources import CheckpointJobs
from exactum.monitor.metrics import MetricsCollector, metrics_handler
from exactum.monitor.verdict import Verdict
from exactum.ops import render
from exactum.ops.cli import main
from exactum.ops.dashboard.routes import dashboard_routes
from tests.kit.environment import ROOT
from tests.kit.monitor.facts import QUERY
from tests.kit.monitor.fixed_output import same_everywhere
from tests.kit.monitor.made_checkpoint import Checkpoint
from tests.kit.monitor.verdict_cases import CASES

OUTPUT = ROOT / "tests" / "kit" / "monitor" / "output"
SHOWN = {
    "works": "OK",
    "falls behind": "SLOW",
    "begins nothing": "STALLED",
    "is held back": "HELD UPSTREAM",
    "was refused": "DOWN",
    "was killed after its decision": "IN DOUBT",
    "is unknown": "UNKNOWN",
}


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(job_sources, "FRESH_S", 0.0)
    with same_everywhere(monkeypatch, tmp_path):
        yield


def test_every_verdict_is_shown() -> None:
    assert {*SHOWN.values()} == {verdict.value for verdict in Verdict}
    assert all(CASES[name][2] == word for name, word in SHOWN.items() if name in CASES)


@pytest.mark.parametrize("name", SHOWN)
def test_rendered(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Checkpoint(tmp_path / "orders")
    with ExitStack() as alive:
        if name in CASES:
            case, lives, word = CASES[name]
            story, last = case(Path("/data/orders"))
            made.spark(last, last).tells(story)
            if word == "IN DOUBT":
                made.spark(last + 1, last).commit(last + 1, age_s=60)
            if lives:
                alive.enter_context(made.alive(story.stats.incarnation or ""))
        else:
            made.spark(1, 1)
        texts = {"pipe": typed()}
        monkeypatch.setattr(render, "is_terminal", lambda: True)
        texts["terminal"] = typed()
        texts["json"] = short(typed("--json"))
        source = CheckpointJobs([made.folder])
        texts["metrics"] = metrics(source)
        texts["page"] = page(source)
    whole = quiet("".join(f"---- {kind}\n{text}\n" for kind, text in texts.items()))
    path = OUTPUT / f"{SHOWN[name].replace(' ', '-').lower()}.txt"
    if os.environ.get("EXACTUM_OUTPUT"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(whole, encoding="utf-8")
    assert whole == path.read_text(encoding="utf-8")


def typed(*options: str) -> str:
    done = CliRunner().invoke(main, ["status", "--checkpoint", "orders", *options])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output.rstrip() if options else f"{done.output}(status {done.exit_code})"


def short(text: str) -> str:
    """Without the figures of the history, which tests/ops/test_output.py has."""
    value = json.loads(text)
    (query,) = value["queries"]
    del query["stats"], query["past"]
    return json.dumps(value, indent=1)


def metrics(source: CheckpointJobs) -> str:
    """But for the bounds of histograms."""
    handler = metrics_handler(MetricsCollector(source, lambda: 0))
    lines = handler(HttpRequest("/")).body.decode().splitlines()
    return "\n".join(line for line in lines if not re.match(r"#|\w+_bucket", line))


def page(source: CheckpointJobs) -> str:
    """What the query's own page says, without its drawings and its script."""
    (name,) = source.jobs()
    html = dashboard_routes(source)["/job/"](HttpRequest(f"/job/{name}")).body.decode()
    html = re.sub(r"<(script|style|svg|title)\b.*?</\1>", "", html, flags=re.DOTALL)
    text = unescape(re.sub(r"<[^>]*>", "\n", html))
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def quiet(text: str) -> str:
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r| +$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{16}\b", "RANDOM", text.replace(QUERY, "QUERY-ID"))
    return text.replace(str(Path.cwd()), "/tmp").replace(exactum.__version__, "VERSION")
