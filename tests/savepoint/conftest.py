"""One real Spark for this folder, whose state stores make snapshots often, and a broker with a query on it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

import exactum
from exactum.local import LocalKafka

# The oracle is the one of the crash tests: what a read_committed reader sees.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "crash")]

if TYPE_CHECKING:
    from totals import Totals

STATE = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": 2,
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = exactum.local_session("exactum-savepoints", master="local[2]", spark_sql_shuffle_partitions=2, **STATE)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def totals(spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> Totals:
    """A query with state over a topic of 200 records; nothing is started yet."""
    import oracle
    from totals import Totals

    source = oracle.Input(topic("in", partitions=3))
    source.produce(kafka.bootstrap_servers, 200)
    return Totals(spark, kafka.bootstrap_servers, source, topic("out", partitions=3), tmp_path / "check point")
