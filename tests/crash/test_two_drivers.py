"""Two drivers on one checkpoint: Spark fences nobody, so the decision log does."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.kit.crash.jobs import new_world
from tests.kit.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.mark.deep  # at each commit test_interleaved.py holds a driver at some of its steps
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
            result = job.result()
            assert result["error"] == "Fenced", result
            assert "another run of this query has taken over" in result["message"]
        world.check_exact(reader)
