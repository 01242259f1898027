"""Two topics of very different rates in one query, killed at random: what barrier alignment is for
elsewhere.

Replay: ``EXACTUM_CRASH_SEED``; longer: ``EXACTUM_CRASH_DEATHS``.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import time
from pathlib import Path

import pytest

from tests.kit.crash import oracle, queries
from tests.kit.crash.jobs import Job, World, check_quiet
from tests.kit.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.spark]

FAST, SLOW = 40, 2
"""Records of each topic in an epoch."""
EPOCHS_OF_A_LIFE = 12
"""More than one has time for on a fast machine: the last life has to find something to do."""
DEATH_WITHIN_S = 3.0
LAST_LIFE_S = 600.0
"""It has all epochs that the dead have left, a hundred after ten deaths."""


@pytest.mark.deep
@pytest.mark.timeout(1_800)  # ten deaths on a busy machine
def test_two_topics_of_different_rates(broker: Broker, tmp_path: Path) -> None:
    """A union and a stream-stream join of a fast and a slow topic, in a driver that is killed at
    random: every record of both is in exactly one epoch, the same one as its neighbours by Spark's
    plan, and every pair is there once.
    """
    seed = int(os.environ.get("EXACTUM_CRASH_SEED", secrets.randbelow(10**6)))
    deaths = int(os.environ.get("EXACTUM_CRASH_DEATHS", "2"))
    print(f"replay with EXACTUM_CRASH_SEED={seed} EXACTUM_CRASH_DEATHS={deaths}")
    random_ = random.Random(seed)
    servers = broker.servers
    sources = {
        name: oracle.Input(broker.topic(name, partitions=parts))
        for name, parts in (("fast", 3), ("slow", 1))
    }
    of_an_epoch = {"fast": FAST, "slow": SLOW}
    for name, count in of_an_epoch.items():
        sources[name].produce(servers, count * EPOCHS_OF_A_LIFE * (deaths + 1))
    outputs = {name: broker.topic(name, partitions=3) for name in ("union", "join")}
    specs = [
        {"query": query, "outputs": [outputs[name]], "checkpoint": str(tmp_path / name)}
        for name, query in (("union", queries.union), ("join", queries.join))
    ]
    retained = {"spark.sql.streaming.minBatchesToRetain": 10 * EPOCHS_OF_A_LIFE * (deaths + 1)}
    spec = {"sources": [(s.topic, of_an_epoch[name]) for name, s in sources.items()]}
    world = World(servers, tmp_path, sources["fast"], [], spec, retained)
    for _ in range(deaths):
        with world.job(*specs, at_once=2) as job:
            job.until(
                lambda job=job: any(has_completed(job, number) for number in (0, 1)),
                "the first epoch of this life",
            )
            time.sleep(random_.uniform(0, DEATH_WITHIN_S))
            job.kill()
            check_quiet(job)
    with world.job(*specs, at_once=2) as job:
        assert job.wait(LAST_LIFE_S) == 0, job.log
        assert job.finishes() == [{"outcome": "finished"}] * 2
        check_quiet(job)

    seen = oracle.read_all(servers, list(outputs.values()))
    for name in outputs:
        query_id = json.loads((tmp_path / name / "metadata").read_text())["id"]
        oracle.check_at_rest(servers, [outputs[name]], query_id)
    check_one_epoch_each(
        [s for s in seen if s.topic == outputs["union"]], sources, tmp_path / "union"
    )
    check_pairs([s for s in seen if s.topic == outputs["join"]], sources["fast"], sources["slow"])


def has_completed(job: Job, number: int) -> bool:
    return any(event["event"] == "EpochCompleted" for event in job.events(number))


def check_one_epoch_each(
    seen: list[oracle.Seen], sources: dict[str, oracle.Input], checkpoint: Path
) -> None:
    """Every input record is there once, stamped with the time of the one epoch whose offsets it
    lies between. The checkpoint has to have kept every epoch's offsets.
    """
    epochs: dict[tuple[str, int, int], int] = {}
    before: dict[str, dict[str, int]] = {}
    for path in sorted(
        (p for p in (checkpoint / "offsets").iterdir() if p.name.isdigit()),
        key=lambda p: int(p.name),
    ):
        _, metadata, *lines = path.read_text().splitlines()
        ends: dict[str, dict[str, int]] = {}
        for line in lines:
            ends.update(json.loads(line) if line != "-" else {})
        for name, partitions in ends.items():
            for partition, end in partitions.items():
                for offset in range(before.get(name, {}).get(partition, 0), end):
                    epochs[name, int(partition), offset] = json.loads(metadata)["batchTimestampMs"]
        before = ends
    wanted = {
        f"{source.topic}/{partition}/{offset}/{value}/{epochs[source.topic, partition, offset]}"
        for source in sources.values()
        for (partition, offset), (_, value) in source.positions.items()
    }
    assert sorted(str(s.value) for s in seen) == sorted(wanted)
    slow = {stamp for (name, _, _), stamp in epochs.items() if name == sources["slow"].topic}
    assert len(slow) > 1, "more than one epoch has records of both"


def check_pairs(seen: list[oracle.Seen], fast: oracle.Input, slow: oracle.Input) -> None:
    """Every pair of equal keys is there once."""
    wanted = [
        f"{f}:{s}"
        for key, values in fast.values.items()
        for f in values
        for s in slow.values.get(key, ())
    ]
    assert sorted(str(s.value) for s in seen) == sorted(wanted)
