"""Older brokers, and tasks that outlive their epoch. Kafka 3.0 to 3.5 takes records of a transaction
without asking its coordinator, and so do later ones with
``transaction.partition.verification.enable=false`` (KIP-890). In ``transaction.version`` 1 a commit
keeps the producer epoch. Without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from exactum.errors import ExactumError
from exactum.local import LocalKafka
from exactum.protocol.sink import TaskName, WriteOrder, Writer
from exactum.testing import Crash
from tests.kit.crash.epochs import Driver, Moment, Query, crash, rows
from tests.kit.crash.oracle import check_at_rest, ongoing
from tests.kit.kafka.broker import Broker
from tests.kit.servers.kafka_cluster import KafkaCluster
from tests.kit.waiting import await_true

pytestmark = pytest.mark.broker

TIMEOUT_MS = 6_000


@pytest.fixture(scope="module")
def version_1() -> Iterator[KafkaCluster]:
    with trusting(1) as cluster:
        yield cluster


def trusting(version: int) -> KafkaCluster:
    properties = {
        "transaction.partition.verification.enable": "false",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    return KafkaCluster(transaction_version=version, properties=properties)  # type: ignore[arg-type]


@pytest.fixture(
    scope="module",
    params=["verifies", "version 1", pytest.param("version 2", marks=pytest.mark.deep)],
)
def any_broker(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    if request.param == "version 2":
        with trusting(2) as cluster:
            yield cluster
    else:
        yield request.getfixturevalue(
            {"verifies": "kafka", "version 1": "version_1"}[request.param]
        )


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
    any_broker: LocalKafka, tmp_path: Path
) -> None:
    """A loser of an epoch (a speculative copy, a lost executor) writes on after its transaction was
    swept under its hands: nothing of it is visible, and what is committed is.
    """
    servers = any_broker.bootstrap_servers
    query = Query(tmp_path, Broker(any_broker).topic("loser", partitions=1), servers)
    zombies: list[Writer] = []
    start = {("prepare", "after"): lambda: zombies.append(zombie_of(driver, query, servers))}
    with query.driver(start) as driver:
        driver.epoch(0, rows([{"value": b"0"}]))
        assert "LeftoversSwept" in driver.names()
        go_on(zombies[0], query, servers)
        driver.epoch(1, rows([{"value": b"1"}]))
        assert query.values() == ["0", "1"]


def test_a_task_that_outlives_its_driver_holds_no_reader_back(
    any_broker: LocalKafka, tmp_path: Path
) -> None:
    """The driver dies before the decision; the next one sweeps, and the dead one's task writes
    on.
    """
    servers = any_broker.bootstrap_servers
    query = Query(tmp_path, Broker(any_broker).topic("orphan", partitions=1), servers)
    with query.driver({("verify", "before"): crash}) as dead:
        with pytest.raises(Crash):
            dead.epoch(0, rows([{"value": b"0", "partition": 0}]))
        zombie = zombie_of(dead, query, servers)
        with query.driver() as driver:
            driver.epoch(0, rows([{"value": b"0"}]))
            go_on(zombie, query, servers)
            driver.epoch(1, rows([{"value": b"1"}]))
            assert query.values() == ["0", "1"]


@pytest.mark.parametrize(
    "moment", [("verify", "before"), ("commit", "half"), ("commit", "after"), ("salvage", "after")]
)
def test_version_1_killed_and_started_again(
    version_1: KafkaCluster, tmp_path: Path, moment: Moment
) -> None:
    """Each row is there once after the deaths that differ by version; so it is where what was decided
    has timed out meanwhile, and its salvage was killed.
    """
    servers = version_1.bootstrap_servers
    expires = moment[0] == "salvage"
    own = {"transaction_timeout_ms": TIMEOUT_MS} if expires else {}
    query = Query(tmp_path, Broker(version_1).topic("killed"), servers, **own)
    tasks = [rows([{"value": f"{task}-{n}".encode()} for n in range(50)]) for task in (0, 1)]
    with (
        query.driver({("commit", "before") if expires else moment: crash}) as driver,
        pytest.raises(Crash),
    ):
        driver.epoch(0, *tasks)
    if expires:
        await_true(lambda: not ongoing(servers, query.query_id), "the broker has timed it out")
        query.wait_for_slow_servers()
        with query.driver({moment: crash}) as driver, pytest.raises(Crash):
            driver.epoch(0, *tasks)
    with query.driver() as driver:
        driver.epoch(0, *tasks)
        assert ("TransactionsSalvaged" in driver.names()) is expires
        driver.epoch(1, rows([{"value": b"next"}]))
    assert query.values() == sorted(
        ["next", *(f"{task}-{n}" for task in (0, 1) for n in range(50))]
    )
