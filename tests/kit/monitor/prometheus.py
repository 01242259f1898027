"""A real Prometheus, the rules that it evaluates, and the dashboard's queries."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from exactum.local.own_process import OwnProcess
from tests.kit.environment import ROOT
from tests.kit.waiting import WAIT_MAX_S

RULES = ROOT / "deploy" / "prometheus" / "exactum.rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "exactum.json"
CONFIG = """
global: {{scrape_interval: 500ms, scrape_timeout: 450ms, evaluation_interval: 500ms}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: exactum
    static_configs: [{{targets: ['{target}']}}]
  - job_name: prometheus
    static_configs: [{{targets: ['127.0.0.1:{port}']}}]
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def names(rules: str) -> list[str]:
    return re.findall(r"- alert: (\w+)", rules)


def shortened(rules: str) -> str:
    """The same rules, for a world in which a minute lasts a second: durations, and numbers of
    seconds from a minute on.
    """

    def duration(found: re.Match[str]) -> str:
        seconds = int(found[2]) * {"s": 1, "m": 60, "h": 3600}[found[3]] / 60
        return f"{found[1]}{max(seconds * 1000, 500):.0f}ms"

    def number(found: re.Match[str]) -> str:
        return f"> {int(found[1]) / 60:g}"

    rules = re.sub(r"(\[|for: |offset )(\d+)([smh])\b", duration, rules)
    return re.sub(r"> (\d{2,})\b", lambda f: f[0] if int(f[1]) < 60 else number(f), rules)


def dashboard_queries() -> dict[str, list[str]]:
    """By panel, as Grafana sends them for all queries."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return {
        f"{panel['id']} {panel['title']}": [
            target["expr"].replace("$query", ".*").replace("$__rate_interval", "15s")
            for target in panel["targets"]
        ]
        for panel in panels
        if panel["type"] != "row"
    }


class Prometheus:
    """Scrapes ``target`` (``host:port``) twice a second and evaluates the rules as often."""

    def __init__(self, folder: Path, target: str, rules: str) -> None:
        program = shutil.which("prometheus")
        assert program is not None, "Prometheus is not installed: make servers"
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        (folder / "rules.yml").write_text(rules)
        (folder / "prometheus.yml").write_text(CONFIG.format(target=target, port=port))
        self._rules = names(rules)
        self._url = f"http://127.0.0.1:{port}"
        self._process = OwnProcess(folder / "server.log")
        self._process.start(
            [
                program,
                "--config.file=prometheus.yml",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ]
        )

    def __enter__(self) -> Prometheus:
        self.until(self._ready, "Prometheus answers")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """What an expression gives now: labels and value."""
        found = self._get("query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def value(self, expression: str) -> float | None:
        """The one value of an expression, None where it has none."""
        found = self.query(expression)
        assert len(found) < 2, f"{expression} has {len(found)} values: {found}"
        return found[0][1] if found else None

    def firing(self) -> set[str]:
        """The names of the alerts that fire, and of those that fail."""
        groups = self._get("rules", type="alert")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert sorted(rule["name"] for rule in rules) == sorted(self._rules)
        broken = {rule["name"]: rule["lastError"] for rule in rules if rule["health"] == "err"}
        assert not broken, broken
        return {rule["name"] for rule in rules if rule["state"] == "firing"}

    def texts(self) -> list[str]:
        """What the alerts at hand say."""
        alerts = self._get("alerts")["alerts"]
        return [text for alert in alerts for text in alert["annotations"].values()]

    def until_firing(self, *alerts: str) -> None:
        """Each has fired since the call, not necessarily all at once."""
        missing = set(alerts)

        def all_have_fired() -> bool:
            missing.difference_update(self.firing())
            return not missing

        self.until(all_have_fired, f"{', '.join(alerts)} fire")

    def until_quiet(self, *alerts: str) -> None:
        """None of them, or of all where none is named, fires."""
        chosen = set(alerts or self._rules)
        self.until(lambda: not self.firing() & chosen, f"quiet: {', '.join(alerts)}")

    def until(self, reached: Callable[[], Any], what: str) -> None:
        deadline_s = time.monotonic() + WAIT_MAX_S
        while not reached():
            assert self._process.running, f"Prometheus has ended: {self._log()}"
            assert time.monotonic() < deadline_s, f"{what}; firing: {sorted(self.firing())}"
            time.sleep(0.2)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def _log(self) -> str:
        return self._process.log_file.read_text(errors="replace")[-2000:]

    def _get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(
                f"{self._url}/api/v1/{path}?{query}", timeout=WAIT_MAX_S
            ) as page:
                return json.load(page)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error


def promtool(*arguments: str | Path) -> str:
    """What promtool says; an AssertionError where it does not agree."""
    done = subprocess.run(
        ["promtool", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=WAIT_MAX_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def get(url: str) -> tuple[int, str]:
    """Status and text of a page."""
    try:
        with urllib.request.urlopen(url, timeout=WAIT_MAX_S) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Each sample of Prometheus' text format: name, labels, value."""
    from prometheus_client.parser import text_string_to_metric_families

    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value
