"""Processes that say nothing, beside a standby: small scripts without Spark that freeze."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit.run.run_command import EXACTUM, Command

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


def command(folder: Path, body: str, *options: str, program: Sequence[str] = EXACTUM) -> Command:
    script = folder / "app.py"
    script.write_text(QUERY + body)
    return Command(folder, script, options, program=program)


WORKS = """
completes()
while not Path("done").exists():
    time.sleep(0.05)
"""


def test_a_standby_that_is_frozen_does_not_get_the_turn(tmp_path: Path) -> None:
    """The script is started again instead, when the one that ran is dead."""
    with command(tmp_path, WORKS, *STANDBY, "2 s") as run:
        run.until(lambda: [*tmp_path.glob("waits-*")], "a standby waits")
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


PAUSES = """
import ctypes
mine = len([*Path().glob("turn-*")])
while len([*Path().glob("waits-*")]) < mine:
    time.sleep(0.05)
ctypes.PyDLL(None).usleep(3_000_000)  # no beat goes out: it holds the interpreter's lock
completes()
time.sleep(1)
"""
SOON = """
import sys
from exactum.ops.run import plan
plan.STANDBY_AFTER_S = 0.1
from exactum.ops.cli import main
main()
"""


@pytest.mark.deep
def test_a_first_epoch_with_a_long_pause_is_completed_in_the_end(tmp_path: Path) -> None:
    """Each life takes the same pause, longer than the timeout, before its first epoch stands. Its
    standby takes over; from the next one a longer silence is borne, so somebody gets through.
    """
    with command(tmp_path, PAUSES, *STANDBY, "2 s", program=("-c", SOON)) as run:
        assert run.ends() == 0
    assert 1 <= run.log.count("takes over") <= 3
