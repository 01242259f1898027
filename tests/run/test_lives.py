"""A real query under ``exactum run``: it dies again and again, is stopped, and is exact at the end.

Replay random deaths with ``EXACTUM_RUN_SEED``; ``EXACTUM_RUN_DEATHS`` says how many (``make deep``:
20).
"""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exactum.local import LocalKafka
from exactum.monitor.job import read_job
from exactum.monitor.verdict import Verdict, judge
from tests.kit.run.run_command import SESSION, check_stopped_between_epochs, new_world

pytestmark = [pytest.mark.broker, pytest.mark.spark]

DEATHS = int(os.environ.get("EXACTUM_RUN_DEATHS", "2"))
RECORDS_PER_EPOCH = 60
EARLY_S = 0.4
"""Within this time a life has imported something and may have begun to start a JVM."""
WITHIN_EPOCHS = (
    {"event": "OlderRunsFenced", "nth": 1},
    {"event": "EpochDecided", "nth": 1},
    {"event": "EpochDecided", "nth": 2},
    {"event": "EpochCompleted", "nth": 1},
    {"event": "EpochCompleted", "nth": 2},
)
FIRST_STARTS = ["--start-attempts", str(DEATHS + 1)]
"""Most lives end before any query of theirs begins."""
WITHIN = 2
"""So many of them die within an epoch."""
AT_ONCE = ["--restart-delay", "10 ms", "--restart-attempts", str(DEATHS)]


def planned(random_: random.Random) -> list[dict[str, Any]]:
    """``DEATHS`` deaths in a random order."""
    deaths: list[dict[str, Any]] = [dict(random_.choice(WITHIN_EPOCHS)) for _ in range(WITHIN)]
    deaths += [{"after_s": random_.uniform(0, EARLY_S)} for _ in range(DEATHS - WITHIN)]
    random_.shuffle(deaths)
    return deaths


@pytest.mark.deep
def test_a_crash_loop_ends_exact(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """A script that dies at random points is started again after each death and ends exact, for a
    reader that ran throughout and for a later one.
    """
    seed = int(os.environ.get("EXACTUM_RUN_SEED", secrets.randbelow(10**6)))
    print(f"replay with EXACTUM_RUN_SEED={seed} EXACTUM_RUN_DEATHS={DEATHS}")
    # A life that dies within an epoch uses up two of them at most, and the last one has to find
    # something to do.
    records = RECORDS_PER_EPOCH * (2 * WITHIN + 1)
    world = new_world(kafka.bootstrap_servers, topic, tmp_path, records=records)
    deaths = planned(random.Random(seed))
    world.plan(*deaths)
    with (
        world.reader() as reader,
        world.run("run", [*AT_ONCE, *FIRST_STARTS]) as run,
    ):
        assert run.ends(400) == 0
        assert len(run.pids()) == DEATHS + 1, f"{deaths}\n{run.log[-3000:]}"
        assert run.log.count("was ended by SIGKILL") == DEATHS
        began = Counter(event["pid"] for event in world.events("RunStarted"))
        assert set(began.values()) == {1}, "each run says once where it begins"
        world.check_exact(reader)


@pytest.mark.deep
def test_a_standby_finishes_what_was_decided(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """The driver dies right after its second decision: no reader sees that epoch until the standby
    has the turn, which commits it and does not write it again.
    """
    world = new_world(kafka.bootstrap_servers, topic, tmp_path, records=50)
    world.plan({"event": "EpochDecided", "nth": 2})
    play = {"drain": False, "max_offsets": 2000}
    with world.reader() as reader, world.run("run", ["--standby"], **play) as run:
        run.says(f"stands by, warmed with records of {world.source.topic}")
        run.until(lambda: len(reader.seen) == 50, "the first epoch is visible")
        world.source.produce(kafka.bootstrap_servers, 50)
        run.says("takes over")
        run.until(lambda: len(reader.seen) == 100, "the second one is visible")
        died = world.events("EpochDecided")[1]
        (redelivered,) = world.events("EpochRedelivered")
        assert redelivered["batch_id"] == died["batch_id"]
        assert redelivered["pid"] == run.pids()[1] != died["pid"]
        run.signal(signal.SIGTERM)
        assert run.ends(60) == 0
        world.check_exact(reader)


@pytest.mark.deep
def test_what_is_decided_is_finished_by_the_next_run(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """A script that must not be started again because of one thing has a decided epoch of another
    query, which waits: the next run commits it first.
    """
    world = new_world(kafka.bootstrap_servers, topic, tmp_path, records=60)
    world.plan({"event": "EpochDecided", "nth": 1, "by": "refusal"})
    with world.reader() as reader:
        with world.run("run", []) as run:
            assert run.ends() == 3
        assert (
            "with SettingRefused: [USER_CODE] another query of this script may not run" in run.log
        )
        assert world.events("EpochRedelivered") == []
        with world.run("next", []) as run:
            assert run.ends() == 0
        (redelivered,) = world.events("EpochRedelivered")
        assert redelivered["batch_id"] == 0
        world.check_exact(reader)


@pytest.mark.parametrize(
    "frozen",
    [pytest.param(False, id="dead"), pytest.param(True, id="dead, frozen", marks=pytest.mark.deep)],
)
def test_a_standby_takes_over_from_the_dead_and_from_the_frozen(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, frozen: bool
) -> None:
    """The standby goes on where the killed one was; the next one where a frozen one was. SIGTERM
    stops the query after its epoch, which Spark has logged. The output is exact. A script that
    waits for the end of any query waits for its own: nobody sees the query that a standby warms up
    with.
    """
    world = new_world(kafka.bootstrap_servers, topic, tmp_path, records=50)
    options = ["--standby", "--standby-timeout", "3 s"]
    noticed = tmp_path / "noticed"
    session = {"spark.ui.enabled": True, "spark.ui.port": 0} if frozen else {}
    play: dict[str, Any] = {
        "drain": False,
        "max_offsets": 2000,
        "noticed": str(noticed),
        "session": {**SESSION, **session},
    }
    with world.reader() as reader, world.run("run", options, **play) as run:
        for taken_over, how in enumerate(["dead", "frozen"][: 1 + frozen]):
            run.says("stands by", taken_over + 1)
            pid = run.pids()[taken_over]
            if how == "dead":
                os.kill(pid, signal.SIGKILL)
            else:
                run.signal_session(pid, signal.SIGSTOP)
            since_s = time.time()
            run.says("takes over", taken_over + 1)
            world.source.produce(kafka.bootstrap_servers, 50)
            successor = run.pids()[taken_over + 1]
            run.until(lambda pid=successor: world.completed_by(pid), "it completes an epoch")  # type: ignore[misc]
            took_s = world.completed_by(successor)[0]["at_s"] - since_s
            print(f"{how}: the first new epoch stands after {took_s:.2f} s")
        run.until(lambda: len(reader.seen) == world.source.count, "everything is there")
        run.signal(signal.SIGTERM)
        assert run.ends(60) == 0
        assert f"warmed with records of {world.source.topic}" in run.log
        assert "the script ends by itself" in run.log
        check_stopped_between_epochs(world.checkpoint.folder, world.events("EpochCompleted"))
        world.check_exact(reader)
    seen = [json.loads(line) for line in noticed.read_text().splitlines()]
    hows = {"listener", "active", *(["UI"] if frozen else [])}
    assert {one["how"] for one in seen if one["pid"] == successor} == hows
    assert all(one["names"] == ["shout"] for one in seen), seen


@pytest.mark.deep
def test_who_was_only_frozen_is_fenced(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """With its supervisor, as a machine that stands still; elsewhere the query is started again.
    When it wakes up, it stops with Fenced, and is not started again.
    """
    world = new_world(kafka.bootstrap_servers, topic, tmp_path, records=50)
    play = {"drain": False, "max_offsets": 2000}
    with world.reader() as reader, world.run("first", [], **play) as first:
        first.until(lambda: len(reader.seen) == 50, "the first epoch is visible")
        (pid,) = first.pids()
        first.signal(signal.SIGSTOP)
        first.signal_session(pid, signal.SIGSTOP)
        world.source.produce(kafka.bootstrap_servers, 50)
        with world.run("second", [], **play) as second:
            second.until(lambda: len(reader.seen) == 100, "the second one goes on")
            first.signal_session(pid, signal.SIGCONT)
            first.signal(signal.SIGCONT)
            world.source.produce(kafka.bootstrap_servers, 50)
            first.says(f"process {pid}: it ended with status 1 with Fenced")
            assert first.ends() == 3
            second.until(lambda: len(reader.seen) == 150, "the second one goes on")
            second.signal(signal.SIGTERM)
            assert second.ends(60) == 0
        world.check_exact(reader)


@pytest.mark.deep
def test_stopped_then_killed(kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> None:
    """SIGTERM: a query that is never idle stops between two epochs, and the script ends by itself;
    the next run goes on from there, with nothing to redeliver and nothing to sweep.

    A driver that dies between decision and commit: the script is started again, commits the epoch
    first, ends, and the output is exact, for a reader that ran throughout and for a later one.
    """
    world = new_world(kafka.bootstrap_servers, topic, tmp_path, records=3000)
    with world.reader() as reader:
        with world.run("busy", [], drain=False, max_offsets=4) as run:
            run.until(lambda: len(world.events("EpochCompleted")) >= 3, "three epochs stand")
            run.signal(signal.SIGTERM)
            assert run.ends(60) == 0
            assert "the script ends by itself" in run.log
        completed = world.events("EpochCompleted")
        before = len(reader.caught_up())
        assert before < 1000
        check_stopped_between_epochs(world.checkpoint.folder, completed)

        world.plan({"event": "EpochDecided", "nth": 2})
        delay = ["--restart-attempts", "1"]
        with world.run("next", delay, max_offsets=1000, control=topic("rules")) as run:
            run.says("is started again in")
            died = world.events("EpochDecided")[-1]
            visible = sum(world.checkpoint.ends(died["batch_id"]).values())
            # The first one may be what Spark had planned before it was stopped: four records.
            assert visible > before + 900, "two epochs"
            run.until(lambda: len(reader.seen) >= visible, "both decided epochs are visible")
            assert run.ends() == 0
            assert len(run.pids()) == 2
            redelivered = world.events("EpochRedelivered")[-1]
            assert redelivered["batch_id"] == died["batch_id"]
            assert redelivered["pid"] == run.pids()[1]
            assert run.log.count("was ended by SIGKILL") == 1
            last_life = run.log.partition(f"as process {run.pids()[1]}")[2]
        assert not re.search("Traceback|could not be closed", without_worker_flush(last_life)), (
            "it ends with spark.stop(), and without a word"
        )
        began = world.events("RunStarted")
        assert len({event["pid"] for event in began}) == len(began) == 3, "each run says it once"
        assert began[1]["batch_id"] == completed[-1]["batch_id"] + 1
        assert "redelivered=(), swept=0" in began[1]["text"]
        world.check_exact(reader)
    found = judge(read_job(world.checkpoint.folder))
    assert (found.verdict, found.reason) == (
        Verdict.OK,
        "It has read what it was to read, and has ended.",
    )


def without_worker_flush(log: str) -> str:
    """The log without what PySpark's daemon prints when ``spark.stop()`` closes the socket of a
    Python worker that still writes (``pyspark/daemon.py``): a matter of the moment, not of exactum.
    """
    return re.sub(
        r"(?:PySpark daemon failed to flush the output to the worker process:\n)?"
        r"Traceback [^\n]*\n(?:  File \"[^\"]*/daemon\.py\"[^\n]*\n(?:    [^\n]*\n)+)+"
        r"(?:BrokenPipe|ConnectionReset)Error[^\n]*\n",
        "",
        log,
    )
