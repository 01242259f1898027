"""Brokers that take records of a transaction without asking its coordinator: Kafka 3.0 to 3.5
always, later ones with ``transaction.partition.verification.enable=false`` (KIP-890). Without
Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from exactum.errors import ExactumError
from exactum.protocol.sink import TaskName, WriteOrder, Writer
from tests.kit.crash.epochs import Crash, Driver, Query, crash, rows
from tests.kit.crash.oracle import check_at_rest, ongoing
from tests.kit.servers.kafka_cluster import KafkaCluster
from tests.kit.waiting import await_true

pytestmark = pytest.mark.broker


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(1, id="version 1"),
        pytest.param(2, id="version 2", marks=pytest.mark.deep),
    ],
)
def trusting(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    properties = {"transaction.partition.verification.enable": "false"}
    with KafkaCluster(transaction_version=request.param, properties=properties) as cluster:
        yield cluster


def zombie_of(driver: Driver, query: Query, servers: str) -> Writer:
    """A task of this run that has an open transaction with a record in partition 0, and that
    nobody waits for.
    """
    before = len(ongoing(servers, query.query_id))
    zombie = driver.writers.open(WriteOrder(driver.run, 0, 1, 1), TaskName(0, 0, 0))
    zombie.write(rows([{"value": b"zombie", "partition": 0}]))
    await_true(
        lambda: len(ongoing(servers, query.query_id)) == before + 1,
        "the zombie's transaction is open",
    )
    return zombie


def go_on(zombie: Writer, query: Query, servers: str) -> None:
    """More records to the same partition, which is part of its transaction for all that it
    knows.
    """
    check_at_rest(servers, [query.topic], query.query_id)  # the markers of the sweep are written
    try:
        zombie.write(rows([{"value": b"zombie again", "partition": 0}]))
        print("it prepared", zombie.prepare())
    except ExactumError as error:
        print("it failed", error)


def test_a_task_that_outlives_its_sweep_holds_no_reader_back(
    trusting: KafkaCluster, tmp_path: Path
) -> None:
    """A loser of an epoch writes on after its transaction was swept: what is committed is
    visible all the same.
    """
    servers = trusting.bootstrap_servers
    trusting.create_topic("loser", partitions=1)
    query = Query(tmp_path, "loser", servers)
    zombies: list[Writer] = []
    start = {("prepare", "after"): lambda: zombies.append(zombie_of(driver, query, servers))}
    with query.driver(start) as driver:
        driver.epoch(0, rows([{"value": b"0"}]))
        assert "LeftoversSwept" in driver.names()
        go_on(zombies[0], query, servers)
        driver.epoch(1, rows([{"value": b"1"}]))
        assert query.values() == ["0", "1"]


def test_a_task_that_outlives_its_driver_holds_no_reader_back(
    trusting: KafkaCluster, tmp_path: Path
) -> None:
    """The driver dies before the decision; the next one sweeps, and the dead one's task writes
    on.
    """
    servers = trusting.bootstrap_servers
    trusting.create_topic("orphan", partitions=1)
    query = Query(tmp_path, "orphan", servers)
    with query.driver({("verify", "before"): crash}) as dead:
        with pytest.raises(Crash):
            dead.epoch(0, rows([{"value": b"0", "partition": 0}]))
        zombie = zombie_of(dead, query, servers)
        with query.driver() as driver:
            driver.epoch(0, rows([{"value": b"0"}]))
            go_on(zombie, query, servers)
            driver.epoch(1, rows([{"value": b"1"}]))
            assert query.values() == ["0", "1"]
