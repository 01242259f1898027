"""``exactum status`` of a real query that works, is held up, frozen, killed, and in doubt. Of one
that has read all and ended: ``tests/run/test_lives.py``.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import exactum
from exactum.checkpoint.run_file import outliving
from exactum.local import LocalKafka
from exactum.monitor.job import JobState, read_job
from exactum.monitor.verdict import Verdict, judge
from exactum.ops.render import job_value, status_of_job
from exactum.storage.folder import Folder
from tests.kit.environment import environment
from tests.kit.run.bare_command import BareCommand
from tests.kit.run.run_command import World, new_world
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.slow

NOT_RESTARTED = ["--restart-attempts", "0", "--listen", "none"]


def said(world: World, *options: str) -> tuple[int, dict[str, Any]]:
    """The command's exit status, and what it says of the query."""
    command = [sys.executable, "-m", "exactum.ops.cli", "status", "--json", *options]
    done = subprocess.run(
        [*command, "--checkpoint", str(world.folder / "checkpoint")],
        check=False,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=WAIT_MAX_S,
    )
    assert done.stderr == ""
    (query,) = json.loads(done.stdout)["queries"]
    assert query["status"] == json.loads(done.stdout)["status"] == done.returncode
    return done.returncode, query


def looked(world: World, later_s: float = 0.0) -> JobState:
    """Judged now; or as it will be if nothing happens until then."""
    at_ms = time.time_ns() // 1_000_000 + round(later_s * 1000)
    return read_job(world.folder / "checkpoint", now_ms=at_ms)


def until(world: World, holds: Callable[[JobState], bool], what: str) -> JobState:
    deadline_s = time.monotonic() + 100
    while not holds(status := looked(world)):
        assert time.monotonic() < deadline_s, f"{what}: {job_value(status)}"
        time.sleep(0.2)
    return status


def is_(verdict: Verdict) -> Callable[[JobState], bool]:
    return lambda job: judge(job).verdict is verdict


def has_read_all(job: JobState) -> bool:
    return is_(Verdict.OK)(job) and bool(job.stats.lags) and job.stats.lags[-1].records == 0


@pytest.mark.deep
def test_a_life(kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> None:
    """Not begun, at work, held upstream, frozen, killed; then waiting, and in doubt."""
    world = new_world(kafka.bootstrap_servers, topic, tmp_path, records=60)
    play = {"drain": False, "stall_after_s": 1.0}
    status, query = said(world)
    assert (status, query["verdict"]) == (2, "UNKNOWN")
    assert "is not a folder" in query["reason"]

    with world.run("first", NOT_RESTARTED, **play) as run:
        status, query = said(world, "--wait-ready", "100")
        assert (status, query["verdict"], query["name"]) == (0, "OK", "shout")
        (alive,) = query["runs"]
        assert alive["pid"] == run.pids()[0]
        found = until(world, has_read_all, "all is read")
        assert found.completed == found.finished == found.planned

        settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "theirs"}
        foreign = Producer(settings)
        foreign.init_transactions(WAIT_MAX_S)
        foreign.begin_transaction()
        foreign.produce(world.source.topic, b"never", partition=0)
        assert foreign.flush(WAIT_MAX_S) == 0
        held = until(world, is_(Verdict.HELD_UPSTREAM), "it is held upstream")
        assert "'theirs' hides 1 offsets" in judge(held).reason
        assert status_of_job(judge(held)) == 1

        run.signal_session(run.pids()[0], signal.SIGSTOP)
        assert is_(Verdict.HELD_UPSTREAM)(looked(world))
        frozen = looked(world, later_s=40)
        assert is_(Verdict.STALLED)(frozen), job_value(frozen)
        run.signal_session(run.pids()[0], signal.SIGCONT)
        foreign.abort_transaction(WAIT_MAX_S)
        until(world, is_(Verdict.OK), "it is no longer held")

        run.signal_session(run.pids()[0], signal.SIGKILL)
        assert run.ends() == 1
        status, query = said(world)
        assert (status, query["verdict"], query["runs"]) == (1, "DOWN", [])
        assert "was ended by SIGKILL" in query["reason"]
        assert query["stats"]["last_failure"]["reason"] == "it was ended by SIGKILL"

    # Plain Python: nobody finishes what it had decided.
    world.plan({"event": "EpochDecided", "nth": 1})
    with world.run("second", [sys.executable], by=BareCommand, **play) as plain:
        until(world, lambda job: job.stats.is_waiting, "it waits")
        status, query = said(world)
        assert (status, query["reason"]) == (
            0,
            "It was started, and has found nothing to read yet.",
        )
        assert query["runs"][0]["pid"] == plain.pids()[0]
        world.source.produce(kafka.bootstrap_servers, 20)
        assert plain.ends() == -signal.SIGKILL
    status, query = said(world)
    assert (status, query["verdict"]) == (1, "IN DOUBT"), query
    assert query["stats"]["in_doubt"]["batch_id"] == query["planned"] == query["decided"]
    assert query["completed"] == query["planned"] - 1
    assert "exactum transactions finish" in query["todo"]


# ---- the script goes on ------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["has read all", "fails", "is stopped while it waits"])
def test_an_end_is_never_taken_for_a_death(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """How it ended is written down before the run lets go of its file."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("x\n")
    checkpoint = tmp_path / "checkpoint"
    once = exactum.exactly_once(exactum.FileSink(tmp_path / "out", format="json"))
    write = once.for_each_batch(checkpoint=checkpoint)

    def code(frame: DataFrame, batch_id: int) -> None:
        write(frame, batch_id)
        raise ValueError("of the user")

    def run(**trigger: Any) -> Any:
        lines = spark.readStream.text(str(tmp_path / "in")).writeStream.trigger(**trigger)
        if way != "fails":
            return once.start(lines, checkpoint=checkpoint)
        return lines.foreachBatch(code).option("checkpointLocation", str(checkpoint)).start()

    if way == "is stopped while it waits":
        query = run(processingTime="0 seconds")
        query.processAllAvailable()
        query.stop()
        assert not outliving(Folder(checkpoint), WAIT_MAX_S)
        query = run(processingTime="0 seconds")
        deadline_s = time.monotonic() + WAIT_MAX_S
        while not outliving(Folder(checkpoint), 0):
            assert time.monotonic() < deadline_s
        query.stop()
    else:
        with suppress(StreamingQueryException):
            assert run(availableNow=True).awaitTermination(WAIT_MAX_S)
    seen: list[tuple[Verdict, str]] = []
    over_s = float("inf")
    while time.monotonic() < over_s:
        found = judge(read_job(checkpoint))
        seen.append((found.verdict, found.reason))
        if over_s == float("inf") and not outliving(Folder(checkpoint), 0):
            over_s = time.monotonic() + 1.5  # more than the recorder keeps anything
    assert not [reason for _, reason in seen if "without a word" in reason]
    verdict, reason = seen[-1]
    assert verdict is (Verdict.OK if way == "has read all" else Verdict.DOWN)
    assert {"has read all": "", "fails": "UnknownFailure"}.get(way, "It was stopped") in reason
