"""Queries that give another result whenever they are computed: state and output agree all the
same, where the driver dies behind a decision.

Each epoch writes all that the state holds of a key, so the output is its own oracle: what was once
said of a number is never said in another way.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.kit.spark.torn_stream import DIES_AT, EPOCHS, Stream

pytestmark = pytest.mark.spark

Kind = Callable[[Path], Any]
"""Of a file that says which life it is: a column."""


def rand(life: Path) -> Any:
    return f.rand()


def uuid(life: Path) -> Any:
    return f.expr("uuid()")


def lookup(life: Path) -> Any:
    return f.udf(life.read_text, "string")()


def told(rows: DataFrame, value: Any) -> DataFrame:
    pairs = f.collect_list(f.struct("number", "value"))
    return rows.withColumn("value", value).groupBy("key").agg(pairs.alias("all"))


@pytest.mark.parametrize(
    "kind",
    [
        rand,
        pytest.param(uuid, marks=pytest.mark.deep),
        pytest.param(lookup, marks=pytest.mark.deep),
    ],
)
def test_what_was_said_stays(spark: SparkSession, tmp_path: Path, kind: Kind) -> None:
    life = tmp_path / "life"
    stream = Stream(spark, tmp_path / "torn", lambda rows: told(rows, kind(life)), "update")
    life.write_text("1")
    stream.live(DIES_AT)
    life.write_text("2")
    stream.live()
    assert stream.kept()
    said: dict[int, set[Any]] = defaultdict(set)
    for line in stream.output():
        for one in json.loads(line)["all"]:
            said[one["number"]].add(one["value"])
    assert len(said) == 6 * EPOCHS
    assert {number: values for number, values in said.items() if len(values) > 1} == {}
