"""The plan of kills, the moments that they wait for, and that a kill takes a whole tree of processes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from exactum.errors import ExactumError
from exactum.ops import processes
from exactum.ops.crash_test.demo import EXACTUM
from exactum.ops.crash_test.killing import JobProgress, Killing, KillMoment, PlannedKill, Shown
from exactum.ops.processes import Driver
from tests.kit.errors import raised

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
    """Moments in turn, and repeatable by the seed."""
    kills = EXACTUM.plan(6, 7, ())
    assert kills == EXACTUM.plan(6, 7, ())
    assert kills != EXACTUM.plan(6, 8, ())
    assert [kill.moment for kill in kills] == [*EXACTUM.moments] * 2


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


def test_a_kill_takes_the_whole_tree(tmp_path: Path) -> None:
    """Nobody survives: neither an orphan nor a process with a group of its own."""
    program = tmp_path / "tree.py"
    program.write_text(TREE)
    leader = subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert leader.stdout is not None
    orphan = int(leader.stdout.readline().split()[1])
    assert processes.members(leader.pid) >= {leader.pid, orphan}
    assert processes.kill_all(leader.pid, known=set()) == 2
    leader.wait()
    processes.await_gone(leader.pid)
    leader.stdout.close()


@pytest.fixture
def silly_driver(tmp_path: Path) -> Driver:
    """A driver that ends at once: there is no such module."""
    return Driver("silly", ("-m", "exactum.ops.nothing"), tmp_path / "driver.log")


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
        with raised(ExactumError, "silly", "(exit status 1)", "No module"):
            watch(silly_driver, seconds=20)
    finally:
        silly_driver.kill()
    assert silly_driver.kill() == 0
