"""A query with state by key, on a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from exactum.local import LocalKafka
from tests.kit.crash import oracle
from tests.kit.state import folds
from tests.kit.state.keyed import Keyed


@pytest.fixture(scope="session")
def spark(spark: SparkSession) -> SparkSession:
    """The one Spark of the session; the stateful processors are pickled by value, as a script's
    own are.
    """
    cloudpickle.register_pickle_by_value(folds)
    return spark


@pytest.fixture
def keyed(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> Keyed:
    """A topic of records by key; nothing is produced and nothing is started yet."""

    source = oracle.Input(topic("in", partitions=3))
    return Keyed(
        spark, kafka.bootstrap_servers, source, topic("out", partitions=3), tmp_path / "checkpoint"
    )
