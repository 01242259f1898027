"""The moments that kills wait for; and the demo on real servers, in a pipe, as ``make demo | tee`` runs it.
(The plan of kills: tests/testing. That a kill takes a whole tree of processes: tests/run.)
"""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from exactum.local.own_process import kill_all, members
from exactum.ops.crash_test.demo import EXACTUM, SPARK, Demo, Settings
from exactum.ops.crash_test.killing import JobProgress, Killing, KillMoment, PlannedKill, Shown
from exactum.testing.crash_verdict import CrashVerdict, OutputDifference
from tests.kit.waiting import WAIT_MAX_S, await_true


def test_a_checkpoint_shows_progress(tmp_path: Path) -> None:
    """Spark's commits by their highest name, exactum's newest decision, the end of the output."""
    shown = Shown(tmp_path, lambda: 7)
    assert shown.progress() == JobProgress(done=-1, planned=-1, decided="", output=7)
    commits, decisions = tmp_path / "commits", tmp_path / "exactum" / "decisions"
    commits.mkdir()
    decisions.mkdir(parents=True)
    for name in ("9", "10", ".10.crc", "metadata"):
        (commits / name).touch()
    for slot in ("9-1", "10-0"):
        batch, attempt = slot.split("-")
        (decisions / f"{batch:0>20}-{attempt}.json").touch()
    assert shown.progress() == JobProgress(10, -1, f"{10:020d}-0.json", 7)


class Played(Shown):
    """A query that shows these states, one at each look, and the last one from then on."""

    def __init__(self, *states: tuple[int, int, str, int]) -> None:
        super().__init__(Path(), lambda: 0)
        self.states = [JobProgress(*each) for each in states]
        self.looks = 0

    def progress(self) -> JobProgress:
        self.looks += 1
        return self.states[min(self.looks, len(self.states)) - 1]


BATCHES = (
    (4, 4, "4-1", 10),
    (4, 5, "4-1", 10),  # batch 5 begins
    (4, 5, "4-1", 15),  # writes
    (4, 5, "5-0", 18),  # is decided
    (5, 5, "5-0", 20),  # is done
    (5, 6, "5-0", 21),
    (5, 6, "5-0", 26),
)


@pytest.mark.parametrize(
    ("kill", "looks"),
    [
        (PlannedKill(KillMoment.OUTPUT), 3),
        (PlannedKill(KillMoment.OUTPUT, sighting=3), 5),
        (PlannedKill(KillMoment.OUTPUT, part=0.5), 7),  # of what batch 5 wrote, seen whole
        (PlannedKill(KillMoment.BATCH), 2),
        (PlannedKill(KillMoment.DECIDED), 4),
        (PlannedKill(KillMoment.DONE), 5),
        (PlannedKill(KillMoment.RANDOM), 2),
    ],
    ids=str,
)
def test_each_moment_is_met(kill: PlannedKill, looks: int) -> None:
    """At the state that shows it, and not before."""
    shown = Played(*BATCHES)
    killing = Killing(shown, lambda: False, quiet_s=60, batch_timeout_s=60)
    assert killing.met(kill) is kill.moment
    assert shown.looks == looks


def test_a_query_that_rests_is_fed_and_at_last_killed_at_any_moment() -> None:
    """And one that has ended is not waited for."""
    given = [True, True, False]
    rests = Killing(
        Played((3, 3, "3-0", 9)),
        lambda: False,
        quiet_s=0.01,
        batch_timeout_s=60,
        feed=lambda: given.pop(0),
    )
    assert rests.met(PlannedKill(KillMoment.DECIDED)) is KillMoment.RANDOM
    assert given == []
    ended = Killing(Played((3, 4, "3-0", 9)), lambda: True, quiet_s=60, batch_timeout_s=60)
    assert ended.met(PlannedKill(KillMoment.DECIDED)) is None


def test_a_process_that_may_not_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is root's, below ``sudo``: the others are killed all the same, and none is left stopped."""
    two = ["/bin/sh", "-c", "sleep 300 & sleep 300 & echo; wait"]
    with subprocess.Popen(two, stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None and leader.stdout.readline()
        of_root, kill = max(members(leader.pid)), os.kill

        def refused(pid: int, number: int) -> None:
            if pid == of_root:
                raise PermissionError(errno.EPERM, "Operation not permitted")
            kill(pid, number)

        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", refused)
            try:
                assert kill_all(leader.pid, set()) == 3
                await_true(lambda: members(leader.pid) == {of_root}, "the others end")
            finally:
                kill(of_root, signal.SIGKILL)
                kill(leader.pid, signal.SIGKILL)


COMMAND = [sys.executable, "-m", "exactum.ops.cli", "demo"]


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
        timeout=WAIT_MAX_S,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "\x1b" not in result.stdout
    said = result.stdout
    assert "VERDICT exactum: exact (0 lost, 0 doubled, 0 altered, 0 unexpected)" in said
    assert re.search(r"exactum: SIGKILL between decision and commit, \d+ processes", said)
    assert re.search(r"exactum: life 2 works, [\d.]+ s after the kill", said)
    assert re.search("driver killed +│ 1: between decision and commit, in life 1 +│", said)
    assert re.search("records, as a reader sees it +│ +6,000 +│", said)
    assert processes_of(tmp_path) == []
    assert list(tmp_path.glob("exactum-demo-*")) == []


def test_the_demo_says_what_was_killed_and_when() -> None:
    """In the table of its verdicts: that the driver was, how often, and at which moments."""
    said = io.StringIO()
    demo = Demo(Settings(3, 100, True, 1, False), Console(file=said, width=200))
    nothing = OutputDifference((), (), (), ())
    one = CrashVerdict("job", 1, ("done", "grown", "done"), 100, 100, nothing, hidden=0, log="log")
    demo.show([EXACTUM, SPARK], [one, replace(one, kills=("grown",))])
    assert re.search("driver killed +│ 3: done, grown, done +│ 1: grown +│", said.getvalue())


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
