"""A checkpoint whose state Spark has repartitioned: it logs a batch of its own, which no decision
names.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from exactum.errors import CheckpointRefused
from exactum.spark.settings import PROVIDER, ROCKSDB
from tests.kit.errors import check_query_error
from tests.kit.spark.query import Query, summed
from tests.kit.spark.torn_stream import of_format_2


@pytest.mark.spark
@pytest.mark.usefixtures("settings_put_back")
def test_the_query_goes_on_once_that_is_accepted(query: Query, spark: SparkSession) -> None:
    """With its state, and with decisions that are compared as before."""
    assert pyspark.__version__ >= "4.2", "in which repartition came"
    spark.conf.set(PROVIDER, ROCKSDB)
    query.checkpoint = query.checkpoint.parent / "checkpoint"  # to repartition a blank is no path
    run = partial(query.run, query.exactly_once(), transform=summed, mode="update")
    query.give(1, 2)
    assert run() is None
    own: Any = of_format_2(spark)
    manager = own._streamingCheckpointManager
    manager.repartition(str(query.checkpoint), 3, enforce_exactly_once_sink=True)
    query.give(3)
    check_query_error(run(), CheckpointRefused, "ENDS_DIFFER", "exactum accept", "--batch 2")
    query.accept(2)
    for _ in range(2):
        assert run() is None
        query.give(5)
    assert query.values() == [1, 2, 4, 9]
