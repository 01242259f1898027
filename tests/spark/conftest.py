"""A query of one file for each micro-batch; and one with state that nothing disturbs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kit.spark import stateful
from tests.kit.spark.query import Query
from tests.kit.spark.torn_stream import Shown, Stream, configured


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


@pytest.fixture(scope="session")
def undisturbed(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Any, str], Shown]:
    """A query of ``stateful`` without a crash, run once: neither the format of its checkpoint nor
    where that lies, nor its state store, may change what it shows.
    """

    @cache
    def shown(make: Any, mode: str) -> Shown:
        whole = Stream(spark, tmp_path_factory.mktemp("whole"), make, mode)
        with configured(spark, stateful.SETTINGS.get(make, {})):
            whole.live()
        return Shown.of(whole)

    return shown
