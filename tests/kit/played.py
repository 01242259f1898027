"""Which tests have passed on these very sources: ``make deep`` goes on where it was interrupted.

What takes many hours, the cells of the fault matrix and the planted faults, counts for one state of
``src``, and is kept with the sources: a release's evidence, which the runs of several days put together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".played"
CELLS = ROOT / "chaos" / "evidence.txt"
FAULTS_FOUND = ROOT / "tests" / "planted" / "evidence.txt"
KEPT = {"tests/chaos/play.py": CELLS, "tests/planted/play.py": FAULTS_FOUND}
"""Each file has in its first line the state of ``src``, then a test in each line."""


def digest_of(*folders: str) -> str:
    """Names the state of what lies there."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def results() -> Path:
    """A test in each line, of those that have passed on these sources and these tests."""
    return FOLDER / f"passed-{digest_of('src', 'tests', 'chaos')}.txt"


def evidence(file: Path) -> list[str]:
    """The tests that are kept there as passed, if they passed on the present ``src``."""
    state, *tests = passed(file) or [""]
    return tests if state == digest_of("src") else []


def kept(file: Path) -> set[str]:
    """The parameters of the tests that are kept there, of whichever state of ``src``."""
    return {test.partition("[")[2].removesuffix("]") for test in passed(file)[1:]}


def keep() -> None:
    """Add what has passed here; what had passed on other sources goes."""
    for module, file in KEPT.items():
        new = [test for test in passed(results()) if test.startswith(module)]
        if new:
            lines = [digest_of("src"), *sorted({*evidence(file), *new})]
            file.write_text("".join(f"{line}\n" for line in lines))


def passed(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


class Played:
    """A plugin: leaves out the tests that have passed ``before``, and adds those that pass to
    ``file``; None: another process does that. What a failed one says is beside it at once, since
    pytest prints it when all have ended, hours later.
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
        if report.failed and self._file is not None:
            self._file.parent.mkdir(exist_ok=True)
            with self._file.with_name("failed.txt").open("a") as file:
                file.write(f"{report.nodeid}\n{report.longreprtext}\n\n")
        if report.when != "teardown" or not report.passed or report.nodeid not in self._passed:
            return
        if self._file is not None:
            self._file.parent.mkdir(exist_ok=True)
            with self._file.open("a") as file:
                file.write(f"{report.nodeid}\n")

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.before:  # all have passed
            session.exitstatus = pytest.ExitCode.OK
