"""Queries on topics, and what the log says of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactum.local import LocalKafka
from tests.kit.source.source_stream import Stream, Topics

_numbers = itertools.count(1)


@pytest.fixture
def topics(kafka: LocalKafka) -> Topics:
    return Topics(kafka)


@pytest.fixture
def make_stream(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> Callable[[], Stream]:
    """Streams whose queries share nothing but the broker."""

    def make() -> Stream:
        folder = tmp_path / f"query{next(_numbers)}"
        folder.mkdir()
        return Stream(spark, kafka, folder)

    return make


@pytest.fixture
def stream(make_stream: Callable[[], Stream]) -> Stream:
    return make_stream()


@pytest.fixture
def begins(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the log said about where sources begin, since the last call."""
    caplog.set_level("INFO", "exactum")

    def take() -> list[str]:
        found = [
            re.sub(r"^query .*?: source (\d+) begins with ", r"\1: ", r.getMessage())
            for r in caplog.records
        ]
        caplog.clear()
        return [line for line in found if re.match(r"\d+: ", line)]

    return take
