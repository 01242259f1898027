"""Processes that say nothing, beside a standby: small scripts without Spark that freeze."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

import pytest

from exactum.local.own_process import members
from exactum.ops.run.supervisor import SilenceTimeout
from tests.kit.environment import ROOT
from tests.kit.run import run_command

pytestmark = pytest.mark.slow

STANDBY = ("--standby", "--listen", "none", "--standby-timeout")
QUERY = """
import os, sys, time
from pathlib import Path
from exactum import events
from exactum.spark.supervised import process

p = process.current()
if not p.turn.wait(1):
    Path(f"waits-{os.getpid()}").touch()
p.wait_for_turn(lambda: None)
Path(f"turn-{os.getpid()}").touch()
p.report("run", query_id="q", path=[], trouble="")

def completes():
    p.report_event(events.EpochCompleted("q", 0, "i", 0, 1, 1, dict()))
"""


def command(folder: Path, body: str, *options: str, before: str = "") -> run_command.Command:
    return run_command.command(folder, before + QUERY + body, *options)


WORKS = """
completes()
Path("works").touch()
while not Path("done").exists():
    time.sleep(0.05)
"""


FREEZES = """
import os, signal
from pathlib import Path
if Path("first").exists() and not Path("frozen").exists():
    Path("frozen").touch()
    os.kill(os.getpid(), signal.SIGSTOP)
Path("first").touch()
"""


@pytest.mark.parametrize(
    ("before", "is_there"),
    [
        pytest.param("", "waits-*", id="it stood by"),
        pytest.param(FREEZES, "frozen", id="it has not said anything"),
    ],
)
def test_a_standby_that_is_frozen_does_not_get_the_turn(
    tmp_path: Path, before: str, is_there: str
) -> None:
    """The script is started again instead, when the one that ran is dead."""
    with command(tmp_path, WORKS, *STANDBY, "2 s", before=before) as run:
        run.until(lambda: [*tmp_path.glob(is_there)], "a standby is there")
        first, standby = run.pids()
        os.kill(standby, signal.SIGSTOP)
        time.sleep(3)
        os.kill(first, signal.SIGKILL)
        run.says(f"process {standby}, a standby, has not been heard of")
        run.says("is started again in")
        run.until(lambda: len(run.pids()) > 2, "the next one")
        (tmp_path / "done").touch()
        assert run.ends() == 0
    assert "takes over" not in run.log


def test_a_process_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of room, or of ids: the one that runs is not disturbed by a standby that cannot be
    had, and a next life is tried for like any other that failed. Both come once there is room.
    """
    room = tmp_path / "room"
    room.mkdir()
    monkeypatch.setenv("TMPDIR", str(room))
    body = 'while not Path("go").exists():\n    time.sleep(0.05)\n'
    with command(tmp_path, body + WORKS, *STANDBY, "2 s") as run:
        run.until(lambda: [*tmp_path.glob("turn-*")], "the first one has its turn")
        rmtree(room)
        (tmp_path / "go").touch()
        run.says("app.py could not be started, a standby: [Errno 2]")
        (first,) = run.pids()
        assert members(first)
        os.kill(first, signal.SIGKILL)
        run.says("app.py could not be started: [Errno 2]")
        run.says("is started again in", 2)
        room.mkdir()
        run.until(lambda: len(run.pids()) > 1, "the next one")
        run.until(lambda: [*tmp_path.glob("waits-*")], "its standby waits")
        (tmp_path / "done").touch()
        assert run.ends() == 0


HOLDS = """
import ctypes, sys, time
ptrace = ctypes.CDLL(None).ptrace
ptrace.argtypes = [ctypes.c_long] * 4
assert ptrace(0x4206, int(sys.argv[1]), 0, 0x40) == 0  # PTRACE_SEIZE, PTRACE_O_TRACEEXIT
print(flush=True)
time.sleep(600)
"""


@contextmanager
def undying(pid: int) -> Iterator[None]:
    """Meanwhile a process does not end when it is killed, as one that waits for a disk."""
    words = [sys.executable, "-c", HOLDS, str(pid)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as holds:
        assert holds.stdout is not None and holds.stdout.readline()
        try:
            yield
        finally:
            holds.kill()


def test_a_frozen_process_that_does_not_die(tmp_path: Path) -> None:
    """Nobody waits for it: the one that took over is heard, and gets a standby of its own."""
    with command(tmp_path, WORKS, *STANDBY, "2 s") as run:
        run.until(lambda: [*tmp_path.glob("waits-*")], "a standby waits")
        run.until((tmp_path / "works").exists, "the first one has been heard of")
        first, standby = run.pids()
        os.kill(first, signal.SIGSTOP)
        with undying(first):
            run.says(f"process {standby} takes over")
            run.until(lambda: len(run.pids()) > 2, "the next standby")
            assert members(first)
        (tmp_path / "done").touch()
        assert run.ends() == 0


LEAVES = """
import subprocess, sys, time
from pathlib import Path
if Path("left").exists():
    sys.exit(0)
left = subprocess.Popen(["sleep", "600"])
Path("left.tmp").write_text(str(left.pid))
Path("left.tmp").rename("left")
while not Path("go").exists():
    time.sleep(0.05)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("status", [1, pytest.param(0, marks=pytest.mark.deep)])
def test_a_dead_script_of_which_something_does_not_die(tmp_path: Path, status: int) -> None:
    """It is given a time, and said. The script is started again all the same, or is done."""
    given = ("--listen", "none", "--restart-delay", "10 ms")
    with run_command.command(tmp_path, LEAVES, *given, arguments=[str(status)]) as run:
        run.until((tmp_path / "left").exists, "it has started something")
        left = int((tmp_path / "left").read_text())
        with undying(left):
            (tmp_path / "go").touch()
            run.says(f"process {run.pids()[0]} has not ended yet, though it was killed")
            run.until(lambda: len(run.pids()) > status, "the next life")
            assert left in members(run.pids()[0])
        assert run.ends() == 0


JVM_IS_GONE = """
completes()
if not Path("gone").exists():
    Path("gone").touch()
    def pulse():
        raise RuntimeError("Connection refused")
    p.beat_with(pulse)
while not Path("done").exists():
    time.sleep(0.05)
"""


def test_a_process_whose_jvm_is_gone(tmp_path: Path) -> None:
    """Its script waits for something else, and does not notice: the standby takes over."""
    with command(tmp_path, JVM_IS_GONE, *STANDBY, "2 s") as run:
        run.says("takes over")
        (tmp_path / "done").touch()
        assert run.ends() == 0


@pytest.mark.deep
def test_a_standby_that_is_frozen_is_replaced(tmp_path: Path) -> None:
    """The one that runs is not disturbed, and its next standby takes over from it, though it is
    frozen as well by then.
    """
    with command(tmp_path, WORKS, *STANDBY, "2 s") as run:
        run.until(lambda: [*tmp_path.glob("waits-*")], "a standby waits")
        run.until((tmp_path / "works").exists, "the first one has been heard of")
        first, standby = run.pids()
        for pid in (standby, first):
            os.kill(pid, signal.SIGSTOP)
        run.says(f"process {standby}, a standby, has not been heard of")
        assert "takes over" not in run.log
        run.says("and no standby is ready: it is replaced once one is")
        run.until(lambda: len(run.pids()) > 2, "the next standby")
        run.says(f"process {run.pids()[2]} takes over")
        (tmp_path / "done").touch()
        assert run.ends() == 0


def test_a_longer_silence_is_borne_of_one_that_gets_nowhere() -> None:
    """Each life may take the same pause, longer than the timeout, before its first epoch stands: somebody
    gets through.
    """
    silence = SilenceTimeout(2.0)
    for timeout_s in (2.0, 4.0, 8.0):
        assert silence.lasts_s(got_somewhere=False) == timeout_s
        assert silence.lasts_s(got_somewhere=True) == 2.0
        silence.ran_out(got_somewhere=False)
    silence.ran_out(got_somewhere=True)
    assert silence.lasts_s(got_somewhere=False) == 2.0


def test_a_clock_that_is_set_makes_nobody_silent() -> None:
    """Who is silent, and what is due, is told by a clock that nobody sets."""
    rooms = ROOT / "src/exactum/ops/run", ROOT / "src/exactum/spark/supervised"
    for path in (path for room in rooms for path in room.glob("*.py")):
        assert not re.search(r"\btime\.time\b|\bdatetime\b", path.read_text()), path
