"""A query with state, on a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactum.local import LocalKafka
from tests.kit.crash import oracle
from tests.kit.savepoint.totals import Totals


@pytest.fixture
def totals(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> Totals:
    """A query with state over a topic of 200 records; nothing is started yet."""
    source = oracle.Input(topic("in", partitions=3))
    source.produce(kafka.bootstrap_servers, 200)
    return Totals(
        spark, kafka.bootstrap_servers, source, topic("out", partitions=3), tmp_path / "check point"
    )
