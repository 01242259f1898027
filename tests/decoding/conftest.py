"""One Spark and one schema registry for all tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import exactum

sys.path.insert(0, str(Path(__file__).parent))

from registry import Registry


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = exactum.local_session("exactum-decoding", master="local[2,2]", spark_sql_shuffle_partitions=2)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry()
    yield server
    server.close()
