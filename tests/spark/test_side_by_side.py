"""Views that are columns alone come side by side in one frame, row by row as Spark gives each of them alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from exactum.spark.view import side_by_side
from exactum.spark.view_columns import named, of_view

Rows = Callable[[DataFrame], DataFrame]

COLUMNS: dict[str, Rows] = {
    "all": lambda rows: rows,
    "one": lambda rows: rows.select("v"),
    "the same twice": lambda rows: rows.select("v", f.col("v").alias("w")),
    "computed": lambda rows: rows.selectExpr("v * 2 AS v", "concat(k, '-') AS `k.k`"),
    "of computed": lambda rows: rows.withColumn("w", f.col("v") + 1).withColumn("x", f.col("w") * 10).drop("v"),
    "of computed, apart": lambda rows: rows.withColumn("k", f.upper("k")).selectExpr(
        "k", "k AS l", "concat(k, k) AS m"
    ),
    "renamed": lambda rows: rows.withColumnsRenamed({"k": "v", "v": "k"}),
    "odd names": lambda rows: rows.toDF("0:v", "a`b.c"),
    "nested": lambda rows: rows.select(f.struct("k", "v").alias("s"), f.array("v", "v").alias("a")),
    "nulls": lambda rows: rows.selectExpr("CASE WHEN v > 3 THEN v END AS v", "CAST(NULL AS BINARY) AS key"),
    "cast": lambda rows: rows.select(f.col("v").cast("decimal(20,3)"), f.col("k").cast("binary")),
}
MORE: dict[str, Rows] = {
    "fewer": lambda rows: rows.where("v > 2"),
    "fewer columns of fewer": lambda rows: rows.where("v > 2").select("k"),
    "none": lambda rows: rows.limit(0),
    "exploded": lambda rows: rows.select("k", f.explode(f.array("v", "v")).alias("v")),
    "added up": lambda rows: rows.groupBy("k").agg(f.sum("v").alias("v")),
    "added up to one": lambda rows: rows.select(f.sum("v").alias("v")),
    "distinct": lambda rows: rows.select("k").distinct(),
    "ranked": lambda rows: rows.selectExpr("k", "row_number() OVER (PARTITION BY k ORDER BY v) AS n"),
    "twice": lambda rows: rows.unionByName(rows),
    "joined": lambda rows: rows.join(rows.select("k").distinct(), "k"),
    "sorted": lambda rows: rows.sort(f.desc("v")),
    "elsewhere": lambda rows: rows.sparkSession.range(3).select("id"),
}


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """Rows with equal keys, in two partitions; a plan like the one that foreachBatch is given."""
    rows = spark.range(0, 8, 1, 2).selectExpr("CAST(id % 3 AS STRING) AS k", "id AS v")
    return spark.createDataFrame(rows.rdd, "k string, v long")


def rows_of(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.toArrow().to_pylist()))


def apart(whole: DataFrame, place: int) -> list[str]:
    batches = [of_view(batch, place) for batch in whole.toArrow().to_batches()]
    return sorted(repr(row) for batch in batches for row in batch.to_pylist())


@settings(max_examples=20, deadline=None)
@given(names=st.lists(st.sampled_from(sorted(COLUMNS)), min_size=2, max_size=4))
def test_columns_alone_are_side_by_side(frame: DataFrame, names: list[str]) -> None:
    frames = [COLUMNS[name](frame) for name in names]
    whole = side_by_side(frames)
    assert whole is not None
    assert [column for place, one in enumerate(frames) for column in named(place, one.columns)] == whole.columns
    assert whole.rdd.getNumPartitions() == frame.rdd.getNumPartitions()
    for place, one in enumerate(frames):
        assert apart(whole, place) == rows_of(one)


@pytest.mark.parametrize("more", sorted(MORE))
@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_a_view_that_is_more_has_a_job_of_its_own(frame: DataFrame, more: str, first: bool) -> None:
    other = MORE[more](frame)
    assert side_by_side([other, frame] if first else [frame, other]) is None


def test_rows_of_one_filter_are_side_by_side(frame: DataFrame) -> None:
    """Made of one and the same frame of fewer rows: each of them is read once for both."""
    fewer = frame.where("v > 2")
    whole = side_by_side([fewer, fewer.select("v")])
    assert whole is not None
    assert (apart(whole, 0), apart(whole, 1)) == (rows_of(fewer), rows_of(fewer.select("v")))


def test_filters_that_look_alike(frame: DataFrame) -> None:
    """Equal conditions over the same rows let the same rows through; random ones do not."""
    whole = side_by_side([frame.where("v > 2"), frame.where("v > 2").select("k")])
    assert whole is not None
    assert whole.count() == 5
    assert side_by_side([frame.where(f.rand() > 0.5), frame.where(f.rand() > 0.5)]) is None


def test_what_is_random_is_drawn_once(frame: DataFrame) -> None:
    """Views of one and the same draw see the same, and so do two columns of a view."""
    drawn = frame.withColumn("r", f.rand())
    whole = side_by_side([frame, drawn, drawn.selectExpr("r AS one", "r AS two")])
    assert whole is not None
    draws = [(row["1:r"], row["2:one"], row["2:two"]) for row in whole.toArrow().to_pylist()]
    assert len(set(draws)) == 8
    assert all(len(set(draw)) == 1 for draw in draws)


def test_columns_of_columns_of_columns(frame: DataFrame) -> None:
    """Each doubles the last one: written out, the last is a sum of a million."""
    deep = frame
    for n in range(20):
        deep = deep.withColumn("v", f.col("v") + f.col("v")).withColumn(f"v{n}", f.col("v"))
    whole = side_by_side([frame, deep, deep.select("v")])
    assert whole is not None
    assert [apart(whole, place) for place in range(3)] == [rows_of(frame), rows_of(deep), rows_of(deep.select("v"))]


def test_a_view_again_of_a_batch() -> None:
    """Its own columns alone, under their own names, with their types; nothing is copied."""
    batch = pa.record_batch({"0:a:b": [1, 2], "10:a": [b"x", None], "1:a": [{"s": 1}, None], "1:": ["", "y"]})
    assert of_view(batch, 0).to_pydict() == {"a:b": [1, 2]}
    assert of_view(batch, 1).to_pydict() == {"a": [{"s": 1}, None], "": ["", "y"]}
    assert of_view(batch, 10).schema == pa.schema({"a": pa.binary()})
    one: Any = of_view(batch, 0)
    assert one.column(0).buffers()[1].address == batch.column(0).buffers()[1].address
