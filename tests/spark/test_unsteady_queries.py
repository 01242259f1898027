"""Queries that give another result whenever they are computed: state and output agree all the
same, where the driver dies behind a decision.

Each epoch writes all that the state holds of a key, so the output is its own oracle: what was once
said of a number is never said in another way.
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from exactum.spark.settings import FORMAT, PROVIDER, ROCKSDB, WITH_IDS
from tests.kit.spark.folder_sink import rows
from tests.kit.spark.query import Query
from tests.kit.spark.torn_stream import DIES_AT, EPOCHS, Stream, configured

pytestmark = pytest.mark.spark

Kind = Callable[[Path], Any]
"""Of a file that says which life it is: a column."""


def rand(life: Path) -> Any:
    return f.rand()


def uuid(life: Path) -> Any:
    return f.expr("uuid()")


def lookup(life: Path) -> Any:
    return f.udf(life.read_text, "string")()


def said_of(lines: Iterable[dict[str, Any]]) -> dict[int, set[Any]]:
    said: dict[int, set[Any]] = defaultdict(set)
    for line in lines:
        for one in line["all"]:
            said[one["number"]].add(one["value"])
    return said


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
    said = said_of(map(json.loads, stream.output()))
    assert len(said) == 6 * EPOCHS
    assert {number: values for number, values in said.items() if len(values) > 1} == {}


def looked_up(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """All numbers so far, each with what was looked up for it."""
    (known,) = state.get if state.exists else ("[]",)
    new = [{"number": n, "value": secrets.token_hex(8)} for frame in frames for n in frame["v"]]
    every = json.dumps([*json.loads(known), *new], default=int)
    state.update((every,))
    yield pd.DataFrame({"every": [every]})


def test_a_function_that_computes_the_batch_before(query: Query) -> None:
    """State goes on from the computation that was written."""
    write = query.exactly_once().for_each_batch(checkpoint=query.checkpoint)

    def each(batch: DataFrame, batch_id: int) -> None:
        batch.count()
        write(batch, batch_id)

    def keyed(frame: DataFrame) -> DataFrame:
        return frame.groupBy("k").applyInPandasWithState(
            looked_up, "every string", "every string", "update", "NoTimeout"
        )

    with configured(query.spark, {PROVIDER: ROCKSDB, FORMAT: WITH_IDS}):
        query.give(1, 2, 3, 4)
        query.give(5, 6, 7, 8)
        assert query.run(each, transform=keyed, mode="update") is None
    said = said_of({"all": json.loads(row["every"])} for row in rows(query.out))
    assert sorted(said) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {number: values for number, values in said.items() if len(values) > 1} == {}
