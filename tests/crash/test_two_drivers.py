"""Two drivers on one checkpoint: Spark fences nobody, so the decision log does."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.kit.crash.jobs import Job, new_world
from tests.kit.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def check_says_why(job: Job) -> None:
    """It was fenced by us, or Spark itself met the other's files: in any case it says that there
    are two.
    """
    result = job.result()
    print(result["error"], result["message"])
    text = result["message"]
    if result["error"] != "Fenced" or "another run of this query has taken over" not in text:
        raise job.failed(f"it does not say that there are two drivers: {result}")


@pytest.mark.deep  # at each commit test_interleaved.py holds a driver at each of its steps
def test_a_stopped_driver_that_wakes_up_is_fenced(broker: Broker, tmp_path: Path) -> None:
    """One is stopped with all prepared, another one with its epoch decided; a third runs to the
    end; then they wake up.

    The undecided one is fenced and says so. The decided one finds its epoch committed, and stops as
    well. Nothing that they do changes the output.
    """
    world = new_world(broker, tmp_path, records=360)
    with world.reader() as reader, contextlib.ExitStack() as running:
        stopped = []
        for step in ("verify", "commit"):
            faults = [{"step": step, "nth": 2, "action": "hold"}]
            stopped.append(running.enter_context(world.job({"faults": faults})))
            stopped[-1].held()
            stopped[-1].pause()
        with world.job() as last:
            last.finishes()
        world.check_exact(reader)
        for job in stopped:
            job.let_go()
            job.resume()
        for job in stopped:
            job.wait()
            check_says_why(job)
        assert stopped[0].result()["error"] == "Fenced"
        assert "Fenced" in stopped[0].log
        world.check_exact(reader)


@pytest.mark.deep
def test_two_running_drivers_leave_one_exact_output(broker: Broker, tmp_path: Path) -> None:
    """A second driver starts while the first one runs: who stops says why, and the output is
    exact.
    """
    world = new_world(broker, tmp_path, records=3000, spec={"max_offsets": 30})
    with world.reader() as reader, world.job() as first:
        first.until(lambda: len(first.events()) > 3, "it has completed an epoch")
        with world.job() as second:
            for job in (first, second):
                job.wait()
            outcomes = [job.result()["outcome"] for job in (first, second)]
            for job, outcome in zip((first, second), outcomes, strict=True):
                if outcome == "failed":
                    check_says_why(job)
            assert "failed" in outcomes, "both went on: nobody was fenced"
        world.check_between(reader)
        with world.job({"max_offsets": 3000}) as last:
            assert last.finishes() == [{"outcome": "finished"}]
        world.check_exact(reader)
