"""Which tests have passed on these very sources: ``make deep`` goes on where it was interrupted."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".played"


def sources_digest() -> str:
    """Names the sources and the tests: a result counts for these alone."""
    digest = hashlib.sha256()
    for folder in ("src", "tests", "chaos"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def results() -> Path:
    """A test in each line."""
    return FOLDER / f"passed-{sources_digest()}.txt"


def passed(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


class Played:
    """A plugin: leaves out the tests that have passed ``before``, and adds those that pass to
    ``file``; None: another process does that.
    """

    def __init__(self, before: Collection[str], file: Path | None) -> None:
        self.before = frozenset(before)
        self._file = file
        self._passed: set[str] = set()

    @pytest.hookimpl(trylast=True)  # behind -m, which would bring them back
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        left_out = [item for item in items if item.nodeid in self.before]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid not in self.before]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed.add(report.nodeid)
        if report.when != "teardown" or not report.passed or report.nodeid not in self._passed:
            return
        if self._file is not None:
            self._file.parent.mkdir(exist_ok=True)
            with self._file.open("a") as file:
                file.write(f"{report.nodeid}\n")

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.before:  # all have passed
            session.exitstatus = pytest.ExitCode.OK
