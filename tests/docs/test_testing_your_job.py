"""docs/testing-your-job.md: what it says is typed, and what it says should be seen is seen."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit.docs.steps import PageStep, pattern, steps
from tests.kit.environment import ROOT, environment
from tests.kit.testing.published import entry_point
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.slow, pytest.mark.deep]

PAGE = ROOT / "docs" / "testing-your-job.md"
OUTPUT_SEED = 2
"""Its first kill strikes right after the output grew."""
TIMEOUT_S = WAIT_MAX_S


def saved(folder: Path, pages: Sequence[PageStep]) -> None:
    for step in pages:
        if step.saved:
            (folder / step.saved[0]).write_text(step.saved[1])


def seen(folder: Path, step: PageStep) -> None:
    """The step's command prints every line that the page promises."""
    (command,) = step.commands
    program, *arguments = command.split()
    assert program == "pytest"
    env = environment()
    env["PYTHONPATH"] = f"{entry_point(folder / 'installed')}:{env['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    lines = done.stdout.splitlines()
    for line in step.seen:
        assert any(re.search(pattern(line), each) for each in lines), (line, done.stdout[-3000:])


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
