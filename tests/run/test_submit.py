"""``exactum run --submit``: spark-submit is the parent of the script, and all is as without it."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from tests.kit.kafka.broker import Broker
from tests.kit.run.bare_command import spark_submit
from tests.kit.run.run_command import Command, new_world
from tests.kit.standalone.machines import Machines


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize(
    "jvm", [pytest.param(False, id="Python"), pytest.param(True, id="JVM", marks=pytest.mark.deep)]
)
def test_a_killed_script_is_started_again_and_stopped(
    broker: Broker, tmp_path: Path, jvm: bool
) -> None:
    """The script's Python dies behind a decision, and its JVM later on: each time both are gone
    before the next life. SIGTERM stops the query between two micro-batches, with status 0.
    """
    world = new_world(broker, tmp_path, records=2000)
    world.plan({"event": "EpochDecided", "nth": 2})
    options = ["--submit", shlex.join(spark_submit()), "--restart-attempts", "2"]
    play = {"drain": False, "max_offsets": 10}
    with world.reader() as reader, world.run("run", options, **play) as run:
        run.says("is started again in")
        assert "was ended by SIGKILL" in run.log
        died = world.events("EpochDecided")[-1]
        run.until(lambda: len(run.pids()) == 2, "a second life")
        run.until_gone(run.pids()[0])
        run.until(lambda: world.events("EpochRedelivered"), "what was decided is committed")
        (redelivered,) = world.events("EpochRedelivered")
        assert redelivered["batch_id"] == died["batch_id"]
        assert redelivered["pid"] != run.pids()[1], "the script is a child of spark-submit"
        run.until(lambda: completed_after(world.events(), died["pid"]), "it goes on")
        if jvm:
            os.kill(run.pids()[1], signal.SIGKILL)
            run.until(lambda: len(run.pids()) == 3, "a third life")
            run.until_gone(run.pids()[1])
            run.until(lambda: completed_after(world.events(), redelivered["pid"]), "and on")
        run.signal(signal.SIGTERM)
        assert run.ends() == 0
        assert "the script ends by itself" in run.log
        world.check_stopped_between_epochs(reader)
        assert not world.is_done(), "it was stopped in the middle of its work"


def completed_after(events: list[dict[str, object]], pid: object) -> bool:
    """Whether a process that came later has completed an epoch."""
    later = [each for each in events if each["pid"] != pid]
    return bool(later) and later[-1]["event"] == "EpochCompleted" and events[-1]["pid"] != pid


@pytest.mark.deep  # make submit plays it; tests/run/test_lives.py has the takeover without a cluster
@pytest.mark.broker
@pytest.mark.spark
def test_a_standby_takes_over_on_a_cluster(broker: Broker, tmp_path: Path) -> None:
    """Below spark-submit in client mode, with executors elsewhere."""
    world = new_world(broker, tmp_path, records=50)
    with Machines(tmp_path, ("127.0.0.2", "127.0.0.3")) as machines, world.reader() as reader:
        submit = [*spark_submit(machines.url), "--total-executor-cores", "1"]
        submit += ["--executor-memory", "512m", "--conf", "spark.driver.host=127.0.0.1"]
        options = ["--submit", shlex.join(submit), "--standby"]
        with world.run("run", options, drain=False) as run:
            run.until(lambda: len(reader.seen) == 50, "all is visible")
            run.says("stands by")
            os.kill(world.events("RunStarted")[0]["pid"], signal.SIGKILL)
            run.says("takes over")
            world.source.produce(broker.servers, 50)
            run.until(lambda: len(reader.seen) == 100, "the standby goes on")
            assert len({each["pid"] for each in world.events("RunStarted")}) == 2
            run.signal(signal.SIGTERM)
            assert run.ends() == 0
        world.check_exact(reader)


WORKER = f"{sys.executable} worker.py"


@pytest.mark.slow
@pytest.mark.parametrize("by_submit", [True, False])
def test_the_channel_is_for_the_script_alone(tmp_path: Path, by_submit: bool) -> None:
    """Programs that it starts, and Python workers of the same JVM, have the variable as well."""
    (tmp_path / "worker.py").write_text(
        "from exactum.spark.supervised import process\n"
        "own = process.current()\n"
        "print('takes part:', own is not None, flush=True)\n"
        "if own: own.turn.wait()\n"
    )
    (tmp_path / "app.py").write_text(
        f"import os, sys\nos.system('{WORKER}')\nimport worker\nsys.exit(9)\n"
    )
    (tmp_path / "submit").write_text(
        f"#!/bin/sh\n{WORKER}\nPYSPARK_GATEWAY_PORT=1 {WORKER}\nexit 137\n"
    )
    (tmp_path / "submit").chmod(0o700)
    options = ["--submit", str(tmp_path / "submit")] if by_submit else []
    with Command(tmp_path, tmp_path / "app.py", [*options, "--restart-attempts", "0"]) as run:
        assert run.ends() == 1
    assert run.log.index("takes part: False") < run.log.index("takes part: True")
    assert ("was ended by SIGKILL" in run.log) is by_submit, "as spark-submit tells it"


@pytest.mark.deep
@pytest.mark.slow
def test_a_submit_that_outlives_its_script_is_killed(tmp_path: Path) -> None:
    """Nobody would start the script again."""
    (tmp_path / "submit").write_text(
        f"#!/bin/sh\nPYSPARK_GATEWAY_PORT=1 {sys.executable} app.py\nsleep 3000\n"
    )
    (tmp_path / "submit").chmod(0o700)
    (tmp_path / "app.py").write_text("import exactum\nexactum.KafkaSink\n")
    options = ["--submit", str(tmp_path / "submit"), "--restart-attempts", "0"]
    with Command(tmp_path, tmp_path / "app.py", options) as run:
        assert run.ends() == 1
    assert "was ended by SIGKILL" in run.log
