"""Queries that give another result whenever they are computed: state and output agree all the
same, where the driver dies behind a decision.

Each epoch writes all that the state holds of a key, so the output is its own oracle: what was once
said of a number is never said in another way.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupStateTimeout

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


def agree(stream: Stream) -> None:
    said: dict[int, set[Any]] = defaultdict(set)
    for line in stream.output():
        for one in json.loads(line)["all"]:
            said[one["number"]].add(one["value"])
    assert len(said) == 6 * EPOCHS
    assert {number: values for number, values in said.items() if len(values) > 1} == {}


def two_lives(spark: SparkSession, folder: Path, make: Any, mode: str, life: Path) -> Stream:
    stream = Stream(spark, folder / "torn", make, mode)
    life.write_text("1")
    stream.live(DIES_AT)
    life.write_text("2")
    stream.live()
    assert stream.kept()
    return stream


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
    stream = two_lives(spark, tmp_path, lambda rows: told(rows, kind(life)), "update", life)
    agree(stream)


@pytest.mark.deep
def test_a_fold_in_the_order_behind_a_shuffle(spark: SparkSession, tmp_path: Path) -> None:
    """The rows of a key come in another order in each life; each line is that of the epoch before
    with more at its end."""
    life = tmp_path / "life"

    def fold(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        numbers = [state.get[0]] if state.exists else []
        for frame in frames:
            numbers += [str(number) for number in frame["number"]]
        state.update((",".join(numbers),))
        yield pd.DataFrame({"key": [key[0]], "numbers": [",".join(numbers)]})

    def make(rows: DataFrame) -> DataFrame:
        backwards = f.udf(lambda n: n if life.read_text() == "1" else -n, "long")
        ordered = rows.repartition(4, backwards("number"))
        kept = "key string, numbers string", "numbers string", "append", GroupStateTimeout.NoTimeout
        return ordered.groupBy("key").applyInPandasWithState(fold, *kept)

    stream = two_lives(spark, tmp_path, make, "append", life)
    lines: dict[str, list[str]] = defaultdict(list)
    for line in stream.output():
        lines[json.loads(line)["key"]].append(json.loads(line)["numbers"])
    assert len(lines) == 3
    for of_key in lines.values():
        of_key.sort(key=len)
        assert len(of_key) == EPOCHS
        assert all(b.startswith(f"{a},") for a, b in pairwise(of_key))
