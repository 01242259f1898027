"""One real Spark for this folder; the stateful processors are pickled by value, as a script's own are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import exactum
from exactum.local import LocalKafka

# The oracle is the one of the crash tests: what a read_committed reader sees.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "crash")]

if TYPE_CHECKING:
    from keyed import Keyed


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    import folds

    cloudpickle.register_pickle_by_value(folds)
    session = exactum.local_session("exactum-state", master="local[2]", spark_sql_shuffle_partitions=2)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def keyed(spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> Keyed:
    """A topic of records by key; nothing is produced and nothing is started yet."""
    import oracle
    from keyed import Keyed

    source = oracle.Input(topic("in", partitions=3))
    return Keyed(spark, kafka.bootstrap_servers, source, topic("out", partitions=3), tmp_path / "checkpoint")
