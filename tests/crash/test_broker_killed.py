"""The broker is killed with SIGKILL in the middle of an epoch, and comes back on the same data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from exactum.local import LocalKafka
from tests.kit.crash.jobs import Job, new_world
from tests.kit.kafka.broker import Broker
from tests.kit.servers.shared import started_kafka

pytestmark = [pytest.mark.broker, pytest.mark.spark]

MOMENTS = [
    {"step": "write", "when": "after", "nth": 2, "partition": 1},
    {"step": "verify", "when": "before", "nth": 3},
    {"step": "commit", "when": "before", "nth": 4},
]


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    """A broker of these tests alone: it is killed."""
    with started_kafka() as cluster:
        yield cluster


@pytest.mark.deep
def test_the_broker_killed_in_the_middle_of_an_epoch(kafka: LocalKafka, tmp_path: Path) -> None:
    """While a task writes, when all is prepared, and when the epoch is decided: the query carries
    on, or it stops with an error that says it may be started again, and is exact after that.
    """
    folders = [tmp_path / f"moment{n}" for n in range(len(MOMENTS))]
    for folder in folders:
        folder.mkdir()
    faults = [
        {**m, "action": "hold", "folder": str(f)} for m, f in zip(MOMENTS, folders, strict=True)
    ]
    world = new_world(Broker(kafka), tmp_path, records=360)
    with world.reader() as reader, contextlib.ExitStack() as jobs:
        job = jobs.enter_context(world.job({"faults": faults}))
        for number, folder in enumerate(folders):
            await_moment(job, folder)
            if job.ended():
                check_may_be_started_again(job)
                world.check_between(reader)
                job = jobs.enter_context(
                    world.job({"faults": [{**f, "nth": 2} for f in faults[number:]]})
                )
                await_moment(job, folder)
            kafka.kill()
            (folder / "go").touch()
            kafka.restart()
        job.wait()
        if job.result()["outcome"] == "failed":
            check_may_be_started_again(job)
            jobs.enter_context(world.job()).finishes()
        world.check_exact(reader)


def await_moment(job: Job, folder: Path) -> None:
    job.until(lambda: (folder / "reached").exists() or job.ended(), f"the fault of {folder.name}")


def check_may_be_started_again(job: Job) -> None:
    """Its disposition is to retry or to run the batch again, and it names what was not reached."""
    job.wait()
    result = job.result()
    print(result)
    assert result["error"] in ("Unavailable", "OutcomeUnknown", "EpochAborted"), result
    assert "kafka" in result["message"].lower() or "127.0.0.1" in result["message"], result
