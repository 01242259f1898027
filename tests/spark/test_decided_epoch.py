"""An epoch that stands and is not in Spark's commit log: the query goes on with the state that
belongs to its output.

The oracle is the same query without a crash: its output, its state as Spark's own reader shows it,
its watermarks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import exactum
from exactum.spark.settings import CHANGELOG
from tests.kit.spark import stateful
from tests.kit.spark.files import lines_in, mounted
from tests.kit.spark.torn_stream import (
    DIES_AT,
    EPOCHS,
    Shown,
    Stream,
    configured,
    into_a_folder,
)

pytestmark = pytest.mark.spark

AsWithoutTheCrash = Callable[..., None]
WITHOUT_INPUT = EPOCHS
"""The epoch after the last one with input: rows are evicted, and timers go off."""


@pytest.fixture
def as_without_the_crash(
    spark: SparkSession,
    tmp_path: Path,
    undisturbed: Callable[[Any, str], Shown],
    caplog: pytest.LogCaptureFixture,
) -> AsWithoutTheCrash:
    """Output, state and watermarks after deaths behind the decision are those of the query that
    never died, and the epoch is not computed again."""

    def holds(
        make: Any, mode: str, die_at: int = DIES_AT, deaths: int = 1, **settings: Any
    ) -> None:
        expected = undisturbed(make, mode)
        caplog.set_level("INFO", "exactum")
        torn = Stream(spark, tmp_path / "torn", make, mode, **settings)
        with configured(spark, stateful.SETTINGS.get(make, {})):
            for _ in range(deaths):
                torn.live(die_at)
            torn.live()
        assert torn.kept(die_at, deaths)
        assert caplog.text.count(f"epoch {die_at} stands, with its state") == deaths
        assert "computed once more" not in caplog.text
        assert Shown.of(torn) == expected

    return holds


def case(make: Any, mode: str, die_at: int = DIES_AT, deaths: int = 1) -> Any:
    """At each commit one: the others are other ways to keep state."""
    marks = () if (make, mode, die_at) == (stateful.update, "update", DIES_AT) else pytest.mark.deep
    return pytest.param(make, mode, die_at, deaths, marks=marks, id=f"{make.__name__}-{mode}")


CASES = [
    # Every query of the table.
    *(case(*query) for query in stateful.QUERIES),
    # In the first epoch, and in one without input.
    case(stateful.join, "append", 0),
    case(stateful.initial_state, "append", 0),
    case(stateful.initial_state_in_pandas, "append", 0),
    case(stateful.timers, "append", WITHOUT_INPUT),
    case(stateful.full_outer, "append", WITHOUT_INPUT),
    case(stateful.groups, "append", WITHOUT_INPUT),
    case(stateful.aggregate_twice, "append", WITHOUT_INPUT),
    case(stateful.join_and_aggregate, "append", WITHOUT_INPUT),
    # Twice at one epoch. At each commit: test_void_attempts.
    case(stateful.windows, "append", WITHOUT_INPUT, 2),
    case(stateful.join, "append", DIES_AT, 2),
    case(stateful.timers, "append", DIES_AT, 2),
    case(stateful.update, "update", 0, 2),
]


@pytest.mark.parametrize(("make", "mode", "die_at", "deaths"), CASES)
def test_as_without_the_crash(
    as_without_the_crash: AsWithoutTheCrash, make: Any, mode: str, die_at: int, deaths: int
) -> None:
    """Every version of a state has an id, which Spark takes from the plan that was executed."""
    as_without_the_crash(make, mode, die_at, deaths)


def name(value: Any) -> str:
    return str(getattr(value, "__name__", value))


@pytest.mark.deep
@pytest.mark.parametrize(
    ("make", "mode"),
    [(stateful.update, "update"), (stateful.join, "append"), (stateful.timers, "append")],
    ids=name,
)
def test_with_whole_snapshots(
    spark: SparkSession, as_without_the_crash: AsWithoutTheCrash, make: Any, mode: str
) -> None:
    """Where RocksDB keeps no changes, the version is a snapshot."""
    with configured(spark, {CHANGELOG: "false"}):
        as_without_the_crash(make, mode)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("make", "mode"), [(stateful.update, "update"), (stateful.join, "append")], ids=name
)
def test_on_a_file_system_that_only_hadoop_knows(
    spark: SparkSession,
    tmp_path: Path,
    as_without_the_crash: AsWithoutTheCrash,
    make: Any,
    mode: str,
) -> None:
    root = mounted(spark, tmp_path)

    def named(folder: Path) -> str:
        return f"{root}/{folder.relative_to(tmp_path)}"

    as_without_the_crash(make, mode, named=named, decision_log=tmp_path / "decisions")


@pytest.mark.deep
@pytest.mark.parametrize("besides", [DataFrame.isEmpty, DataFrame.count], ids=name)
def test_other_versions_beside_it(
    spark: SparkSession, tmp_path: Path, besides: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What a function computes besides is another version: Spark goes on with the one that
    belongs to the output, although a table that the stream is joined with has changed."""
    caplog.set_level("INFO", "exactum")
    stream = Stream(spark, tmp_path, stateful.heavy, "update")
    stream.live(DIES_AT, before=stateful.weights(spark, 1, 1, 1))
    died: list[bool] = []

    def once(frame: DataFrame) -> None:
        if not died:
            died.append(True)
            besides(frame)

    stream.live(before=stateful.weights(spark, 100, 100, 100), besides=once)
    assert f"epoch {DIES_AT} stands, with its state" in caplog.text
    totals = sorted({json.loads(line)["total"] for line in stream.output()})
    assert totals == [2, 4, 6, 206, 406], "6 stands, and what came after it rests on it"


@pytest.mark.deep
def test_with_a_view_of_its_own_job_and_dead_letters(
    as_without_the_crash: AsWithoutTheCrash, tmp_path: Path
) -> None:
    """One sink sees the batch, one sums of it, which need a job of their own, and one refuses rows,
    which go to the dead letters, each epoch's once.
    """

    def sums(frame: DataFrame) -> DataFrame:
        return frame.groupBy("key").agg(f.sum("total").alias("total"))

    def by_name(frame: DataFrame) -> DataFrame:
        """A folder's name has 255 bytes at most."""
        return frame.selectExpr("total", "repeat(key, IF(key = 'k1', 200, 1)) AS name")

    def sinks(folder: Path) -> dict[str, Any]:
        out, names = into_a_folder(folder)["sinks"][0], str(folder / "names")
        return {
            "sinks": [
                out,
                exactum.FileSink(folder / "sums", format="json", rows=sums),
                exactum.FileSink(names, format="json", partition_by="name", rows=by_name),
            ],
            "dead_letters": exactum.FileSink(folder / "letters", format="json"),
        }

    as_without_the_crash(stateful.update, "update", sinks=sinks)
    places = {
        name: lines_in(tmp_path / "torn" / name) for name in ("out", "sums", "names", "letters")
    }
    assert sorted(places["sums"]) == sorted(places["out"])
    assert (len(places["names"]), len(places["letters"])) == (2 * EPOCHS, EPOCHS)
