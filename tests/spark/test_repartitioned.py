"""A checkpoint whose state Spark has repartitioned: it logs a batch of its own, which no decision
names.
"""

from __future__ import annotations

from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("settings_put_back")]

ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def counted(frame: DataFrame) -> DataFrame:
    return frame.groupBy("k").count().withColumnRenamed("count", "v")


@pytest.fixture
def query(query: Any, spark: SparkSession) -> Any:
    """Its state in RocksDB; a path with a blank is none to Spark's repartition."""
    query.checkpoint = query.checkpoint.parent / "checkpoint"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS_DB)
    return query


def repartition(spark: SparkSession, query: Any, partitions: int) -> None:
    """In a session of its own, which has the format that the checkpoint has (docs/state.md)."""
    own: Any = spark.newSession()
    own.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
    manager = own._streamingCheckpointManager
    manager.repartition(str(query.checkpoint), partitions, enforce_exactly_once_sink=True)


@pytest.mark.parametrize("times", [1, 2])
def test_the_query_goes_on(query: Any, spark: SparkSession, times: int) -> None:
    """With its state, and with decisions that are compared as before."""
    assert pyspark.__version__ >= "4.2", "in which repartition came"
    query.give(1, 2)
    assert query.run(query.exactly_once(), transform=counted, mode="update") is None
    for time in range(times):
        repartition(spark, query, 3 + time)
    for value in (3, 5):
        query.give(value)
        assert query.run(query.exactly_once(), transform=counted, mode="update") is None
    assert query.values() == [1, 1, 2, 3]


def test_a_decision_that_is_lost_before_it_is_missed(query: Any, spark: SparkSession) -> None:
    """The batch that Spark has logged stands for none that exactum has decided."""
    query.give(1, batches=2)
    assert query.run(query.exactly_once(), transform=counted, mode="update") is None
    repartition(spark, query, 3)
    for slot in (query.checkpoint / "exactum" / "decisions").glob("*01-*"):
        slot.unlink()
    query.give(3)
    assert "ENDS_DIFFER" in query.run(query.exactly_once(), transform=counted, mode="update")
