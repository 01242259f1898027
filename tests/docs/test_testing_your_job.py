"""docs/testing-your-job.md: what it says is typed, and what it says should be seen is seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit.docs.steps import PageStep, pattern, steps
from tests.kit.environment import ROOT
from tests.kit.testing.published import pytest_of_a_user

pytestmark = [pytest.mark.slow, pytest.mark.deep]

PAGE = ROOT / "docs" / "testing-your-job.md"
OUTPUT_SEED = 2
"""Its first kill strikes right after the output grew."""


def saved(folder: Path, pages: Sequence[PageStep]) -> None:
    for step in pages:
        if step.saved:
            (folder / step.saved[0]).write_text(step.saved[1])


def seen(folder: Path, step: PageStep) -> None:
    """The step's command prints every line that the page promises."""
    (command,) = step.commands
    program, *arguments = command.split()
    assert program == "pytest"
    said = pytest_of_a_user(folder, *arguments)
    for line in step.seen:
        assert re.search(pattern(line), said), (line, said[-3000:])


def with_one_kill(folder: Path, step: PageStep) -> None:
    """For a run that costs less than that of the page: two starts of Spark instead of six."""
    expected = "lambda orders: [(key, value.upper()) for key, value in orders]"
    cheap = f"ORDERS, kills=1, seed={OUTPUT_SEED}, expected={expected})"
    test = folder / "test_job.py"
    test.write_text(test.read_text().replace("ORDERS)", cheap))
    step.seen = [
        line.replace("4 SIGKILLs", "1 SIGKILL") for line in step.seen if "kill 4" not in line
    ]
    assert "1 SIGKILL:" in "".join(step.seen)


def test_a_reader_who_follows_the_page(tmp_path: Path) -> None:
    """A job that is exact passes; with four kills beside a run that nobody kills."""
    job, test, first, *_ = steps(PAGE)
    saved(tmp_path, [job, test])
    seen(tmp_path, first)


def test_sparks_own_sink_is_found_out(tmp_path: Path) -> None:
    """It doubles."""
    _, test, _, job, second = steps(PAGE)
    saved(tmp_path, [test, job])
    with_one_kill(tmp_path, second)
    seen(tmp_path, second)
