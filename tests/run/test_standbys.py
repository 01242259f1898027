"""Standbys when the clock is set, and two supervised pairs on one checkpoint that start at the
same instant.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.clock import Clock
from exactum.local import LocalKafka
from tests.kit.environment import environment
from tests.kit.run import run_command
from tests.kit.run.run_command import Command, World, new_world
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.broker, pytest.mark.spark]

TIMEOUT_S = 3.0
"""After which silence a standby has its turn."""
STANDBY = ["--standby", "--standby-timeout", f"{TIMEOUT_S:.0f} s"]


def reads_more(world: World, run: Command, reader: object, count: int = 50) -> None:
    world.source.produce(world.bootstrap_servers, count)
    run.until(lambda: len(reader.seen) >= world.source.count, "everything is there")  # type: ignore[attr-defined]


@pytest.mark.deep
def test_a_clock_that_is_set_makes_no_standby_take_over(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour forth and two back, for supervisor, driver, standby and their JVMs: nobody is taken
    for silent, nothing is done twice. Afterwards a killed driver is noticed as soon as ever.
    """
    clock, plain = Clock(tmp_path), environment()
    monkeypatch.setattr(run_command, "environment", lambda: {**plain, **clock.environment})
    world = new_world(kafka.bootstrap_servers, topic, tmp_path, records=50)
    with world.reader() as reader, world.run("run", STANDBY, drain=False) as run:
        run.says("stands by")
        for ahead_s in (3_600, -3_600, 0):
            clock.move(ahead_s)
            reads_more(world, run, reader)
            time.sleep(2 * TIMEOUT_S)
        assert "takes over" not in run.log
        assert "has not been heard of" not in run.log
        clock.move(-3_600)
        since_s = time.monotonic()
        os.kill(run.pids()[0], signal.SIGKILL)
        run.says("takes over")
        assert time.monotonic() - since_s < 30
        reads_more(world, run, reader)
        run.signal(signal.SIGTERM)
        assert run.ends() == 0
        world.check_exact(reader)


@pytest.mark.deep
def test_two_pairs_that_start_at_the_same_instant(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """At most one of them goes on; whoever loses ends with status 3 and hands the query to no
    standby of its own, so that they do not take it from one another for ever. When the winner's
    driver dies, its standby goes on.
    """
    world = new_world(kafka.bootstrap_servers, topic, tmp_path, records=100)
    with world.reader() as reader:
        with (
            world.run("one", STANDBY, drain=False) as one,
            world.run("two", STANDBY, drain=False) as two,
        ):
            pair = (one, two)
            deadline_s = time.monotonic() + WAIT_MAX_S
            while all(run._process.poll() is None for run in pair):
                assert time.monotonic() < deadline_s, (
                    f"both go on\n{one.log[-2000:]}\n{two.log[-2000:]}"
                )
                world.source.produce(kafka.bootstrap_servers, 5)
                time.sleep(0.5)
            time.sleep(2 * TIMEOUT_S)
            for run in pair:
                assert run._process.poll() in (None, 3), run.log[-3000:]
                assert "takes over" not in run.log
            going_on = [run for run in pair if run._process.poll() is None]
            print(f"{len(going_on)} of two go on")
            for run in going_on:
                run.says("stands by")
                os.kill(run.pids()[0], signal.SIGKILL)
                run.says("takes over")
                reads_more(world, run, reader)
                run.signal(signal.SIGTERM)
                assert run.ends() == 0
        with world.run("last", []) as last:
            assert last.ends() == 0
        world.check_exact(reader)
