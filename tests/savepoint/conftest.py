"""A query with state, on a broker."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from exactum.local import LocalKafka

# The oracle is the one of the crash tests: what a read_committed reader sees. The registry is that
# of the decoders'.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in ("savepoint", "crash", "decoding")]

if TYPE_CHECKING:
    from totals import Totals


@pytest.fixture
def totals(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> Totals:
    """A query with state over a topic of 200 records; nothing is started yet."""
    import oracle
    from totals import Totals

    source = oracle.Input(topic("in", partitions=3))
    source.produce(kafka.bootstrap_servers, 200)
    return Totals(
        spark, kafka.bootstrap_servers, source, topic("out", partitions=3), tmp_path / "check point"
    )
