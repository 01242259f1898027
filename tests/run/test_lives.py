"""A real query under ``exactum run``: it dies or freezes, its standby takes over, it is stopped, and is exact
at the end. Random deaths of a driver: ``tests/crash/test_random_deaths.py``.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from exactum.ops.run.plan import Plan
from tests.kit.kafka.broker import Broker
from tests.kit.process_tree import signal_session
from tests.kit.run.run_command import SESSION, new_world
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.mark.parametrize(
    "frozen",
    [pytest.param(False, id="dead"), pytest.param(True, id="dead, frozen", marks=pytest.mark.deep)],
)
def test_a_standby_takes_over_from_the_dead_and_from_the_frozen(
    broker: Broker, tmp_path: Path, frozen: bool
) -> None:
    """A driver dies right after a decision: the standby commits that epoch, does not write it again,
    and goes on; the next one goes on where a frozen one was. SIGTERM stops the query after its epoch,
    which Spark has logged. The output is exact. A script that waits for the end of any query waits
    for its own: nobody sees the query that a standby warms up with.
    """
    world = new_world(broker, tmp_path, records=50)
    world.plan({"event": "EpochDecided", "nth": 2})
    noticed = tmp_path / "noticed"
    session = {"spark.ui.enabled": True, "spark.ui.port": 0} if frozen else {}
    play: dict[str, Any] = {
        "drain": False,
        "max_offsets": 2000,
        "noticed": str(noticed),
        "session": {**SESSION, **session},
    }
    with world.reader() as reader, world.run("run", ["--standby"], **play) as run:
        for taken_over, how in enumerate(["dead", "frozen"][: 1 + frozen]):
            run.says("stands by", taken_over + 1)
            pid = run.pids()[taken_over]
            if how == "dead":
                run.until(lambda: len(reader.seen) == 50, "the first epoch is visible")
                world.source.produce(broker.servers, 50)
            else:
                signal_session(pid, signal.SIGSTOP)
            run.says("takes over", taken_over + 1)
            successor = run.pids()[taken_over + 1]
            if how == "dead":
                run.until(lambda: world.events("EpochRedelivered"), "what was decided is committed")
                (redelivered,) = world.events("EpochRedelivered")
                decided = [each for each in world.events("EpochDecided") if each["pid"] == pid]
                assert redelivered["batch_id"] == decided[-1]["batch_id"]
                assert redelivered["pid"] == successor
            world.source.produce(broker.servers, 50)
            run.until(lambda pid=successor: world.completed_by(pid), "it completes an epoch")  # type: ignore[misc]
        run.until(lambda: len(reader.seen) == world.source.count, "everything is there")
        run.signal(signal.SIGTERM)
        assert run.ends() == 0
        assert f"warmed with records of {world.source.topic}" in run.log
        assert "the script ends by itself" in run.log
        world.check_stopped_between_epochs(reader)
        world.check_exact(reader)
    seen = [json.loads(line) for line in noticed.read_text().splitlines()]
    hows = {"listener", "active", *(["UI"] if frozen else [])}
    assert {one["how"] for one in seen if one["pid"] == successor} == hows
    assert all(one["names"] == ["shout"] for one in seen), seen


@pytest.mark.deep
def test_two_pairs_that_start_at_the_same_instant(broker: Broker, tmp_path: Path) -> None:
    """One of them goes on; whoever loses ends with status 3 and hands the query to no
    standby of its own, so that they do not take it from one another for ever. When the winner's
    driver dies, its standby goes on.
    """
    world = new_world(broker, tmp_path, records=100)
    with world.reader() as reader:
        with (
            world.run("one", ["--standby"], drain=False) as one,
            world.run("two", ["--standby"], drain=False) as two,
        ):
            pair = (one, two)
            deadline_s = time.monotonic() + WAIT_MAX_S
            while one.alive and two.alive:
                assert time.monotonic() < deadline_s, (
                    f"both go on\n{one.log[-2000:]}\n{two.log[-2000:]}"
                )
                world.source.produce(broker.servers, 5)
                time.sleep(0.5)
            time.sleep(2 * Plan.standby_timeout_s)
            for run in pair:
                assert run.alive or run.ends() == 3, run.log[-3000:]
                assert "takes over" not in run.log
            (run,) = [run for run in pair if run.alive]
            run.says("stands by")
            os.kill(run.pids()[-2], signal.SIGKILL)  # the last one stands by
            run.says("takes over")
            world.source.produce(broker.servers, 50)
            run.until(lambda: len(reader.seen) >= world.source.count, "all is there")
            run.signal(signal.SIGTERM)
            assert run.ends() == 0
        with world.run("last", []) as last:
            assert last.ends() == 0
        world.check_exact(reader)
