"""The plan of kills, what a checkpoint shows, and that a kill takes a whole tree of processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exactum.errors import ExactumError
from exactum.ops import process_session
from exactum.ops.demo.chaos import Aim, plan
from exactum.ops.demo.checkpoint import ShownCheckpoint
from exactum.ops.demo.driver import Driver

# As a driver has it: a child, whose own child has a process group of its own and whose parent is
# dead.
TREE = """
import os, sys, time
if os.fork() == 0:
    parent = os.getpid()
    if os.fork() == 0:
        os.setpgid(0, 0)
        while os.getppid() == parent:
            time.sleep(0.005)
        print("orphan", os.getpid(), flush=True)
        time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


def test_a_seed_gives_the_same_plan() -> None:
    """Kills are spread over the time, aims in turn, and repeatable by the seed."""
    kills = plan(6, 60, (Aim.DECIDED, Aim.WRITING, Aim.RANDOM), seed=7)
    assert kills == plan(6, 60, (Aim.DECIDED, Aim.WRITING, Aim.RANDOM), seed=7)
    assert kills != plan(6, 60, (Aim.DECIDED, Aim.WRITING, Aim.RANDOM), seed=8)
    assert [kill.aim for kill in kills] == [Aim.DECIDED, Aim.WRITING, Aim.RANDOM] * 2
    assert all(10 * n < kill.due_s < 10 * (n + 1) for n, kill in enumerate(kills))
    assert plan(0, 60, (Aim.RANDOM,), seed=7) == []


def test_a_checkpoint_shows_progress(tmp_path: Path) -> None:
    """Spark's commits by their highest name, exactum's decisions by counting COMMITs, pruned
    ones included.
    """
    checkpoint = ShownCheckpoint(tmp_path)
    assert (checkpoint.last_commit(), checkpoint.decided()) == (-1, 0)
    commits, decisions = tmp_path / "commits", tmp_path / "exactum" / "decisions"
    commits.mkdir()
    decisions.mkdir(parents=True)
    for name in ("9", "10", ".10.crc", "metadata"):
        (commits / name).touch()
    for slot, decision in (("0-0", "abort"), ("0-1", "commit"), ("1-0", "commit")):
        (decisions / f"{0:019d}{slot}.json").write_text(json.dumps({"decision": decision}))
    assert (checkpoint.last_commit(), checkpoint.decided()) == (10, 2)
    (decisions / f"{0:019d}0-1.json").unlink()
    assert checkpoint.decided() == 2


def test_a_kill_takes_the_whole_tree(tmp_path: Path) -> None:
    """Nobody survives: neither an orphan nor a process with a group of its own."""
    program = tmp_path / "tree.py"
    program.write_text(TREE)
    leader = subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert leader.stdout is not None
    orphan = int(leader.stdout.readline().split()[1])
    assert process_session.members(leader.pid) >= {leader.pid, orphan}
    assert process_session.kill_all(leader.pid, known=set()) == 2
    leader.wait()
    process_session.await_gone(leader.pid)
    leader.stdout.close()


@pytest.fixture
def silly_driver(tmp_path: Path) -> Driver:
    """A driver that ends at once: there is no such module."""
    return Driver("silly", "exactum.ops.demo.nothing", (), tmp_path / "driver.log")


def watch(driver: Driver, seconds: float) -> None:
    """Check the driver until it fails, at most so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        driver.check()
        time.sleep(0.02)


def test_a_driver_that_ends_by_itself_is_an_error(silly_driver: Driver) -> None:
    """The demo says so and shows the end of the log; it does not restart what fails by itself."""
    silly_driver.start()
    try:
        with pytest.raises(
            ExactumError, match=r"driver of silly ended by itself \(exit status 1\)(.|\n)*No module"
        ):
            watch(silly_driver, seconds=20)
    finally:
        silly_driver.kill()
    assert silly_driver.kill() == 0
