"""The query on a real Kafka and a real Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import exactum
import job
import orders
from exactum.local import LocalKafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[LocalKafka]:
    """A broker for the tests alone, on a free port."""
    with LocalKafka() as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.create_topic("shouted", partitions=2)
        yield cluster


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = exactum.local_session("test", master="local[2]")
    yield session
    session.stop()


def test_each_order_is_shouted_once(kafka: LocalKafka, spark: SparkSession, tmp_path: Path) -> None:
    sent = orders.send(kafka.bootstrap_servers, 100)
    # availableNow: read what is there, then end. The second run finds nothing new.
    for _ in range(2):
        job.started(
            spark, kafka.bootstrap_servers, str(tmp_path), availableNow=True
        ).awaitTermination()
    found = orders.read(kafka.bootstrap_servers, len(sent))
    assert sorted(found) == sorted(order.upper() for order in sent)
