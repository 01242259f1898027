"""A query with state, on a broker; one over files; and one without state, made by hand."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactum.local import LocalKafka
from exactum.storage.folder import Folder
from tests.kit.crash import oracle
from tests.kit.savepoint.stateless import Driver, make_checkpoint, start_driver
from tests.kit.savepoint.totals import Totals
from tests.kit.spark.query import Query


@pytest.fixture
def totals(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> Totals:
    """A query with state over a topic of 120 records; nothing is started yet."""
    source = oracle.Input(topic("in", partitions=3))
    source.produce(kafka.bootstrap_servers, 120)
    return Totals(
        spark, kafka.bootstrap_servers, source, topic("out", partitions=3), tmp_path / "check point"
    )


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a query without state that has completed epochs 0 and 1."""
    make_checkpoint(Folder(tmp_path / "checkpoint"))
    return tmp_path / "checkpoint"


@pytest.fixture
def driver(checkpoint: Path) -> Iterator[Driver]:
    """Start a process that runs on ``checkpoint``."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        started.append(start_driver(checkpoint, *arguments))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
