"""Queries on topics, and what the log says of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from exactum.local import LocalKafka
from exactum.spark.jvm.packed import PackedBatches
from tests.kit.source.columnar_ways import MOVING, ROWS, WAYS, way_of
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


# Spark's rows are the way that the other tests of the source take as well.
@pytest.fixture(
    params=[pytest.param(w, marks=pytest.mark.deep if w == ROWS else ()) for w in (*WAYS, MOVING)]
)
def way(request: pytest.FixtureRequest, spark: Any) -> Iterator[str]:
    with way_of(spark, request.param):
        yield request.param


@pytest.fixture
def packed_jobs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One item for each job whose records came packed."""
    seen: list[Any] = []
    texts = PackedBatches.texts

    def noting(self: Any, frame: Any, layout: str, job: Any, tasks: Any, order: Any) -> Any:
        found = texts(self, frame, layout, job, tasks, order)
        seen.extend([] if found is None else [tasks])
        return found

    monkeypatch.setattr(PackedBatches, "texts", noting)
    return seen
