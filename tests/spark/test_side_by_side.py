"""Views that compute rows one by one come side by side in one frame, as Spark gives each of them
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors.exceptions.captured import NumberFormatException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from exactum.spark.write.view_columns import mask, named, of_view
from exactum.spark.write.view_plan import side_by_side

Rows = Callable[[DataFrame], DataFrame]


def doubled(column: str) -> Any:
    return f.udf(lambda v: v * 2, "long", useArrow=False)(column)


COLUMNS: dict[str, Rows] = {
    "all": lambda rows: rows,
    "one": lambda rows: rows.select("v"),
    "the same twice": lambda rows: rows.select("v", f.col("v").alias("w")),
    "computed": lambda rows: rows.selectExpr("v * 2 AS v", "concat(k, '-') AS `k.k`"),
    "of computed": lambda rows: (
        rows.withColumn("w", f.col("v") + 1).withColumn("x", f.col("w") * 10).drop("v")
    ),
    "of computed, apart": lambda rows: rows.withColumn("k", f.upper("k")).selectExpr(
        "k", "k AS l", "concat(k, k) AS m"
    ),
    "renamed": lambda rows: rows.withColumnsRenamed({"k": "v", "v": "k"}),
    "odd names": lambda rows: rows.toDF("0:v", "a`b.c"),
    "nested": lambda rows: rows.select(f.struct("k", "v").alias("s"), f.array("v", "v").alias("a")),
    "nulls": lambda rows: rows.selectExpr(
        "CASE WHEN v > 3 THEN v END AS v", "CAST(NULL AS BINARY) AS key"
    ),
    "cast": lambda rows: rows.select(f.col("v").cast("decimal(20,3)"), f.col("k").cast("binary")),
}
FEWER: dict[str, Rows] = {
    "fewer": lambda rows: rows.where("v > 2"),
    "fewer columns of fewer": lambda rows: rows.where("v > 2").select("k"),
    "fewer of computed": lambda rows: (
        rows.withColumn("w", f.col("v") * 2).where("w > 6 AND k = '1'").drop("v")
    ),
    "fewer of fewer": lambda rows: rows.where("v > 2").selectExpr("v + 1 AS v", "k").where("v < 7"),
    "by another name": lambda rows: rows.alias("r").where("r.k = '2'"),
    "by what may be null": lambda rows: rows.where("nullif(v, 3) > 2"),
    "never null": lambda rows: rows.where("v > 2").selectExpr(
        "upper(concat('a', 'b')) AS s", "coalesce(k, '') AS t"
    ),
    "none at all": lambda rows: rows.where("v < 0"),
    "what may be read": lambda rows: rows.where("k = '1'").selectExpr(
        "CAST(if(k = '1', '7', 'x') AS INT) AS v"
    ),
}
MORE: dict[str, Rows] = {
    "none": lambda rows: rows.limit(0),
    "exploded": lambda rows: rows.select("k", f.explode(f.array("v", "v")).alias("v")),
    "added up": lambda rows: rows.groupBy("k").agg(f.sum("v").alias("v")),
    "added up to one": lambda rows: rows.select(f.sum("v").alias("v")),
    "distinct": lambda rows: rows.select("k").distinct(),
    "ranked": lambda rows: rows.selectExpr(
        "k", "row_number() OVER (PARTITION BY k ORDER BY v) AS n"
    ),
    "twice": lambda rows: rows.unionByName(rows),
    "joined": lambda rows: rows.join(rows.select("k").distinct(), "k"),
    "fewer of many layers": lambda rows: COLUMNS["of computed, apart"](rows.where("v > 2")),
    "by a function of the user": lambda rows: rows.where("v > 2").select(doubled("v").alias("v")),
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


@pytest.mark.deep
@settings(max_examples=8, deadline=None)
@given(names=st.lists(st.sampled_from(sorted(COLUMNS | FEWER)), min_size=2, max_size=4))
def test_rows_one_by_one_are_side_by_side(frame: DataFrame, names: list[str]) -> None:
    frames = [(COLUMNS | FEWER)[name](frame) for name in names]
    whole = side_by_side(frames)
    assert whole is not None
    assert whole.rdd.getNumPartitions() == frame.rdd.getNumPartitions()
    expected = [column for place, one in enumerate(frames) for column in named(place, one.columns)]
    assert [column for column in whole.columns if not column.endswith("?")] == expected
    for place, one in enumerate(frames):
        assert apart(whole, place) == rows_of(one)


@pytest.mark.deep
@pytest.mark.parametrize("fewer", sorted(FEWER))
def test_fewer_rows_beside_columns_in_layers(frame: DataFrame, fewer: str) -> None:
    """What is null for a row that a view leaves out passes through the layers of another view, also
    where it is never null in its own.
    """
    frames = [FEWER[fewer](frame), COLUMNS["of computed, apart"](frame)]
    whole = side_by_side(frames)
    assert whole is not None
    assert [apart(whole, place) for place in range(2)] == [rows_of(one) for one in frames]


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
    """Equal conditions over the same rows let the same rows through, which are computed once."""
    whole = side_by_side([frame.where("v > 2"), frame.where("v > 2").select("k")])
    assert whole is not None
    assert whole.count() == 5
    assert mask(0) not in whole.columns


def test_a_random_filter_is_drawn_once_for_all_columns(frame: DataFrame) -> None:
    some = frame.where(f.rand() > 0.5).selectExpr("v", "v AS w", "v AS x", "v AS y")
    whole = side_by_side([frame, some, frame.where(f.rand() > 0.5)])
    assert whole is not None
    assert apart(whole, 0) == rows_of(frame)
    for row in whole.toArrow().to_pylist():
        assert {row["1:v"], row["1:w"], row["1:x"], row["1:y"]} == (
            {row["0:v"]} if row["1?"] else {None}
        )


@pytest.mark.parametrize("code", ["FALLBACK", "NO_CODEGEN"])
def test_what_a_filter_takes_out_is_not_computed(spark: SparkSession, code: str) -> None:
    """A cast that fails for such a row fails nobody, however often it is written (Spark's ANSI
    mode).
    """
    mixed = spark.createDataFrame(
        spark.createDataFrame([(x,) for x in ("7", "x", None)], "k string").rdd, "k string"
    )
    number = "CAST(k AS INT)"
    numbers = mixed.where("k rlike '^[0-9]+$'").selectExpr(
        f"{number} AS n", f"{number} + 1 AS m", f"{number} AS o"
    )
    spark.conf.set("spark.sql.codegen.factoryMode", code)
    try:
        whole = side_by_side([mixed, numbers, mixed.where("k = '7'").selectExpr(f"{number} AS n")])
        assert whole is not None
        assert [apart(whole, place) for place in range(3)] == [
            ["{'k': '7'}", "{'k': 'x'}", "{'k': None}"],
            ["{'n': 7, 'm': 8, 'o': 7}"],
            ["{'n': 7}"],
        ]
        with pytest.raises(NumberFormatException):
            mixed.selectExpr(number).collect()
    finally:
        spark.conf.unset("spark.sql.codegen.factoryMode")


def test_what_is_random_is_drawn_once(frame: DataFrame) -> None:
    """Views of one and the same draw see the same, and so do two columns of a view."""
    drawn = frame.withColumn("r", f.rand())
    whole = side_by_side([frame, drawn, drawn.selectExpr("r AS one", "r AS two")])
    assert whole is not None
    draws = [(row["1:r"], row["2:one"], row["2:two"]) for row in whole.toArrow().to_pylist()]
    assert len(set(draws)) == 8
    assert all(len(set(draw)) == 1 for draw in draws)


@pytest.mark.deep
def test_columns_of_columns_of_columns(frame: DataFrame) -> None:
    """Each doubles the last one: written out, the last is a sum of a million."""
    deep = frame
    for n in range(20):
        deep = deep.withColumn("v", f.col("v") + f.col("v")).withColumn(f"v{n}", f.col("v"))
    whole = side_by_side([frame, deep, deep.select("v")])
    assert whole is not None
    assert [apart(whole, place) for place in range(3)] == [
        rows_of(frame),
        rows_of(deep),
        rows_of(deep.select("v")),
    ]


def test_a_view_again_of_a_batch() -> None:
    """Its own columns alone, under their own names, with their types; nothing is copied."""
    batch = pa.record_batch(
        {"0:a:b": [1, 2], "10:a": [b"x", None], "1:a": [{"s": 1}, None], "1:": ["", "y"]}
    )
    assert of_view(batch, 0).to_pydict() == {"a:b": [1, 2]}
    assert of_view(batch, 1).to_pydict() == {"a": [{"s": 1}, None], "": ["", "y"]}
    assert of_view(batch, 10).schema == pa.schema({"a": pa.binary()})
    fewer = pa.record_batch({"0:a": [1, 2, 3], "1:a": [4, 5, 6], "1?": [True, None, False]})
    assert (of_view(fewer, 0).num_rows, of_view(fewer, 1).to_pydict()) == (3, {"a": [4]})
    one: Any = of_view(batch, 0)
    assert one.column(0).buffers()[1].address == batch.column(0).buffers()[1].address
