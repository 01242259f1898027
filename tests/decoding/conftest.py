"""A schema registry and a query for each test of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactum.formats import registry as registry_client
from tests.kit.decoding.decoded_stream import Job
from tests.kit.decoding.registry import Registry


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that is asked in this process is believed sooner that it does not know a
    schema.
    """
    monkeypatch.setattr(registry_client, "TIMEOUT_S", 0.3)


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry()
    yield server
    server.close()


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path / "check point")
