"""A checkpoint whose state Spark has repartitioned: it logs a batch of its own, which no decision
names.
"""

from __future__ import annotations

from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from exactum.errors import CheckpointRefused
from tests.kit.errors import check_query_error

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


def test_the_query_goes_on_once_that_is_accepted(query: Any, spark: SparkSession) -> None:
    """With its state, and with decisions that are compared as before."""
    assert pyspark.__version__ >= "4.2", "in which repartition came"
    query.give(1, 2)
    assert query.run(query.exactly_once(), transform=counted, mode="update") is None
    repartition(spark, query, 3)
    query.give(3)
    text = query.run(query.exactly_once(), transform=counted, mode="update")
    check_query_error(text, CheckpointRefused, "ENDS_DIFFER", "exactum accept", "--batch 2")
    query.accept(2)
    for _ in range(2):
        assert query.run(query.exactly_once(), transform=counted, mode="update") is None
        query.give(5)
    assert query.values() == [1, 1, 2, 3]
