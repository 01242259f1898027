"""The demo on real servers, in a pipe, as ``make demo | tee`` runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.kit.waiting import WAIT_MAX_S, await_true

COMMAND = [sys.executable, "-m", "exactum.ops.cli", "demo"]
TIMEOUT_S = WAIT_MAX_S


def processes_of(folder: Path) -> list[str]:
    """Command lines of all running processes whose environment names this folder: children
    inherit it.
    """
    found = []
    for process in psutil.process_iter():
        # It ended meanwhile, or is a stranger's.
        with suppress(psutil.Error):
            if process.environ().get("TMPDIR") == str(folder):
                found.append(" ".join(process.cmdline()))
    return found


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.deep  # tests/testing plays the crash test, and the demo's parts have tests here
def test_the_demo_is_exact_and_leaves_nothing(tmp_path: Path) -> None:
    """A SIGKILL of the driver, which is started again: status 0, a verdict, no escape codes, no
    process, no file.
    """
    result = subprocess.run(
        [*COMMAND, "--records", "6000", "--no-comparison", "--seed", "1"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "\x1b" not in result.stdout
    said = result.stdout
    assert "VERDICT exactum: exact (0 lost, 0 doubled, 0 altered, 0 unexpected)" in said
    assert re.search(r"exactum: SIGKILL between decision and commit, \d+ processes", said)
    assert re.search(r"exactum: life 2 works, [\d.]+ s after the kill", said)
    assert re.search("records, as a reader sees it +│ +6,000 +│", said)
    assert processes_of(tmp_path) == []
    assert list(tmp_path.glob("exactum-demo-*")) == []


@contextmanager
def demo_at_work(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo whose first driver is starting."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    demo = subprocess.Popen(
        COMMAND, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        assert demo.stdout is not None
        assert any("exactum: starting" in line for line in demo.stdout)
        await_true(lambda: len(processes_of(folder)) > 3, "the driver starts")
        yield demo
    finally:
        demo.kill()
        demo.communicate()


@pytest.mark.broker
@pytest.mark.deep
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: int, status: int) -> None:
    """Ctrl-C while the drivers start: no process, no file. SIGKILL: everything that it started ends as
    well.
    """
    with demo_at_work(tmp_path) as demo:
        demo.send_signal(number)
        assert demo.wait(WAIT_MAX_S) == status
        await_true(lambda: not processes_of(tmp_path), "nothing of it runs")
    assert number == signal.SIGKILL or list(tmp_path.glob("exactum-demo-*")) == []
