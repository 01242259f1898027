"""A smaller run on a broker that still has ``transaction.version`` 1, where a commit keeps the
producer epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.test_timed_out import TIMEOUT_MS, die_and_time_out
from tests.kit.crash.jobs import live_and_die, new_world
from tests.kit.kafka.broker import Broker
from tests.kit.servers.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.broker, pytest.mark.spark]

DEATHS = [
    ("all tasks have prepared", {"step": "verify", "when": "before"}),
    ("half of a sink is committed", {"step": "commit", "when": "half"}),
    (
        "the epoch is complete, Spark has not logged it",
        {"step": "batch", "when": "after", "nth": 2},
    ),
]


@pytest.fixture(scope="module")
def older() -> Iterator[Broker]:
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    with KafkaCluster(transaction_version=1, properties=properties) as cluster:
        yield Broker(cluster)


@pytest.mark.deep
def test_killed_and_restarted(older: Broker, tmp_path: Path) -> None:
    """Exact through the deaths that differ by version, and quiet."""
    live_and_die(new_world(older, tmp_path, records=240 * len(DEATHS)), DEATHS)


@pytest.mark.deep
def test_decided_and_timed_out(older: Broker, tmp_path: Path) -> None:
    """The salvage works there as well."""
    sink = {"transaction_timeout_ms": TIMEOUT_MS}
    world = new_world(older, tmp_path, records=120, spec={"sink": sink})
    with world.reader() as reader:
        die_and_time_out(world)
        with world.job() as job:
            job.finishes()
            assert "TransactionsSalvaged" in [event["event"] for event in job.events()]
            world.check_exact(reader)
