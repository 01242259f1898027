"""Declared views come side by side in one frame, as Spark gives each of them alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors.exceptions.captured import NumberFormatException
from pyspark.sql import DataFrame, SparkSession

from exactum import Rows
from exactum.errors import FrameRefused, SettingRefused
from exactum.spark.write.view import SideBySide, View
from exactum.spark.write.write_task import of_view
from tests.kit.errors import raised

ROWS: dict[str, Rows | None] = {
    "all": None,
    "all, declared": Rows(),
    "one": Rows(columns=["v"]),
    "the same twice": Rows(columns=["v", "v AS w"]),
    "computed": Rows(columns=["v * 2 AS v", "concat(k, '-') AS `k.k`"]),
    "renamed": Rows(columns=["k AS v", "v AS k"]),
    "odd names": Rows(columns=["k AS `0:v`", "v AS `a``b.c`"]),
    "nested": Rows(columns=["struct(k, v) AS s", "array(v, v) AS a"]),
    "nulls": Rows(columns=["CASE WHEN v > 3 THEN v END AS v", "CAST(NULL AS BINARY) AS key"]),
    "cast": Rows(columns=["CAST(v AS decimal(20,3))", "CAST(k AS binary)"]),
    "fewer": Rows(where="v > 2"),
    "fewer, and one": Rows(where="v > 2", columns=["k"]),
    "by what may be null": Rows(where="nullif(v, 3) > 2"),
    "never null": Rows(where="v > 2", columns=["upper(concat('a', 'b')) AS s", "coalesce(k, '')"]),
    "none at all": Rows(where="v < 0"),
    "all as JSON": Rows(columns=["to_json(struct(*)) AS value"]),
    "fewer as JSON": Rows("v > 2", ["k AS key", "to_json(struct(*)) AS value"]),
    "what may be read": Rows(where="k = '1'", columns=["CAST(if(k = '1', '7', 'x') AS INT) AS v"]),
}
NOT_OF_A_ROW = {
    "several of a row": ["explode(array(v, v)) AS v"],
    "one of all": ["sum(v) AS v"],
    "all columns": ["*"],
    "of no column": ["nobody"],
    "by its rank": ["k", "row_number() OVER (PARTITION BY k ORDER BY v) AS n"],
    "within another": ["coalesce(k, CAST(sum(v) OVER () AS STRING)) AS k"],
    "several times of a row": ["window(timestamp_seconds(v), '4 seconds', '2 seconds') AS w"],
    "none where no time is": ["window(timestamp_seconds(nullif(v, 3)), '4 seconds').start AS w"],
    "none of some": ["date_format(window(timestamp_seconds(v), '4 seconds').end, 'H') AS h"],
    "a session": ["session_window(timestamp_seconds(v), '4 seconds') AS w"],
}


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """Rows with equal keys, in two partitions; a plan like the one that foreachBatch is given."""
    rows = spark.range(0, 8, 1, 2).selectExpr("CAST(id % 3 AS STRING) AS k", "id AS v")
    return spark.createDataFrame(rows.rdd, "k string, v long")


def rows_of(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.toArrow().to_pylist()))


def apart(whole: Sequence[pa.RecordBatch], place: int) -> list[str]:
    seen = [of_view(batch, place) for batch in whole]
    return sorted(repr(row) for batch in seen for row in batch.to_pylist())


def together(frame: DataFrame, *rows: Rows | None) -> DataFrame:
    seen = [View(one, (place,)) for place, one in enumerate(rows)]
    names = [[name for name, _ in view.columns(frame)] for view in seen]
    return SideBySide(seen, names).of(frame)


def test_as_each_alone(frame: DataFrame) -> None:
    """Whatever stands beside it, and before it: neither conditions nor what another view calls its
    columns are columns of the batch.
    """
    alone = [rows_of(frame if one is None else one(frame)) for one in ROWS.values()]
    for step in (1, -1):
        whole = together(frame, *[*ROWS.values()][::step])
        assert whole.rdd.getNumPartitions() == frame.rdd.getNumPartitions()
        batches = whole.toArrow().to_batches()
        assert [apart(batches, place) for place in range(len(ROWS))] == alone[::step]


def test_a_random_condition_is_drawn_once_for_all_columns(frame: DataFrame) -> None:
    some = Rows(where="rand() > 0.5", columns=["v", "v AS w", "v AS x", "v AS y"])
    whole = together(frame, None, some, Rows(where="rand() > 0.5"))
    drawn = whole.toArrow()
    assert apart(drawn.to_batches(), 0) == rows_of(frame)
    for row in drawn.to_pylist():
        assert {row["1:v"], row["1:w"], row["1:x"], row["1:y"]} == (
            {row["0:v"]} if row["1?"] else {None}
        )


@pytest.mark.parametrize("code", ["FALLBACK", "NO_CODEGEN"])
def test_of_rows_that_are_left_out_nothing_is_computed(spark: SparkSession, code: str) -> None:
    """A cast that fails for such a row fails nobody, however often it is written (Spark's ANSI
    mode).
    """
    mixed = spark.createDataFrame(
        spark.createDataFrame([(x,) for x in ("7", "x", None)], "k string").rdd, "k string"
    )
    number = "CAST(k AS INT)"
    numbers = Rows("k rlike '^[0-9]+$'", [f"{number} AS n", f"{number} + 1 AS m", f"{number} AS o"])
    spark.conf.set("spark.sql.codegen.factoryMode", code)
    try:
        whole = together(mixed, None, numbers, Rows("k = '7'", [f"{number} AS n"]))
        batches = whole.toArrow().to_batches()
        assert [apart(batches, place) for place in range(3)] == [
            ["{'k': '7'}", "{'k': 'x'}", "{'k': None}"],
            ["{'n': 7, 'm': 8, 'o': 7}"],
            ["{'n': 7}"],
        ]
        with pytest.raises(NumberFormatException):
            mixed.selectExpr(number).collect()
    finally:
        spark.conf.unset("spark.sql.codegen.factoryMode")


@pytest.mark.parametrize("columns", NOT_OF_A_ROW.values(), ids=NOT_OF_A_ROW)
def test_what_is_not_one_value_of_each_row_is_refused(frame: DataFrame, columns: list[str]) -> None:
    with raised(FrameRefused, "VIEW_EXPRESSION", columns[0]):
        View(Rows(columns=columns), (0,)).columns(frame)


def test_a_condition_on_several_windows_of_a_row_is_refused(frame: DataFrame) -> None:
    """It would double the row for the sinks beside it."""
    where = "window(timestamp_seconds(v), '4 seconds', '2 seconds').start > timestamp_seconds(0)"
    with raised(FrameRefused, "VIEW_EXPRESSION", where):
        View(Rows(where=where), (0,)).columns(frame)


@pytest.mark.parametrize(
    "given", [{"where": 3}, {"where": " "}, {"columns": "k"}, {"columns": [1]}]
)
def test_what_is_no_declaration_is_refused(given: dict[str, Any]) -> None:
    with raised(SettingRefused, "VIEW_ARGUMENT"):
        Rows(**given)


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
