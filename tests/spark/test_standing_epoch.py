"""An epoch that stands and is not in Spark's commit log: the query goes on with the state that belongs to its output.

The oracle is the same query without a crash: its output, its state as Spark's own reader shows it, its watermarks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import exactum
from exactum import events

pytestmark = pytest.mark.spark

RUN_TIMEOUT_S = 120
EPOCHS = 5
DIES_AT = 2


class DiedHere(Exception):
    """Between the sinks' commit and Spark's commit log."""


class Stream:
    """Rows (key, number, at) in files, one for each epoch, through a query into a folder."""

    def __init__(self, spark: SparkSession, folder: Path, make: Callable[[DataFrame], DataFrame], mode: str) -> None:
        self.spark, self.folder, self.make, self.mode = spark, folder, make, mode
        self.checkpoint = folder / "checkpoint"
        (folder / "input").mkdir(parents=True)
        self.events: list[Any] = []
        began_s = time.time() - 1_000
        for epoch in range(EPOCHS):
            path = folder / "input" / f"{epoch}.json"
            rows = [{"key": f"k{n % 3}", "number": 10 * epoch + n, "at": at(epoch, n)} for n in range(6)]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(path, (began_s + epoch,) * 2)  # Spark takes them by age

    def live(
        self,
        die: bool = False,
        before: Callable[[], None] = lambda: None,
        besides: Callable[[DataFrame], object] = lambda frame: None,
    ) -> None:
        """One life over all input; with ``die`` it ends when epoch ``DIES_AT`` stands. ``besides`` is what the function
        does with the frame before it calls exactum."""
        before()
        exact = exactum.exactly_once(exactum.FileSink(self.folder / "out", format="json"), on_event=self.events.append)

        def each_batch(frame: DataFrame, batch_id: int) -> None:
            besides(frame)
            exact(frame, batch_id)
            if die and batch_id == DIES_AT:
                raise DiedHere

        rows = (
            self.spark.readStream.schema("key string, number long, at timestamp")
            .option("maxFilesPerTrigger", 1)
            .json(str(self.folder / "input"))
        )
        query = (
            self.make(rows)
            .writeStream.foreachBatch(each_batch)
            .outputMode(self.mode)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(RUN_TIMEOUT_S)
        except Exception as error:
            if "DiedHere" not in str(error) or not die:
                raise
        finally:
            query.stop()

    def output(self) -> list[str]:
        return sorted(line for path in (self.folder / "out").glob("part-*") for line in path.read_text().splitlines())

    def watermarks(self) -> list[Any]:
        logged = sorted(
            (p for p in (self.checkpoint / "commits").iterdir() if p.name.isdigit()), key=lambda p: int(p.name)
        )
        return [json.loads(path.read_text().splitlines()[1])["nextBatchWatermarkMs"] for path in logged]

    def state(self) -> list[str]:
        """Of every operator and store, as Spark's own reader shows it."""
        found: list[str] = []
        described = self.spark.read.format("state-metadata").load(str(self.checkpoint)).collect()
        for one in described:
            reader = self.spark.read.format("statestore").option("operatorId", one.operatorId)
            if one.stateStoreName != "default":
                reader = reader.option("storeName", one.stateStoreName)
            rows = reader.load(str(self.checkpoint)).select("key", "value").collect()
            found.extend(f"{one.operatorId} {one.stateStoreName} {row}" for row in rows)
        return sorted(found)

    def kept(self) -> bool:
        """Whether epoch ``DIES_AT`` was redelivered, and not written again."""
        redelivered = [e.batch_id for e in self.events if isinstance(e, events.EpochRedelivered)]
        completed = [e.batch_id for e in self.events if isinstance(e, events.EpochCompleted)]
        return redelivered == [DIES_AT] and completed.count(DIES_AT) == 1


def at(epoch: int, number: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(1_700_000_000 + 10 * epoch + number))


def update(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").agg(f.sum("number").alias("total"))


def windows(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "5 seconds").groupBy(f.window("at", "10 seconds"), "key").count()


def sessions(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "2 seconds").groupBy(f.session_window("at", "2 seconds"), "key").count()


def duplicates(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "30 seconds").dropDuplicatesWithinWatermark(["key"])


def join(rows: DataFrame) -> DataFrame:
    one = rows.withWatermark("at", "5 seconds").alias("one")
    two = rows.withWatermark("at", "7 seconds").alias("two")
    near = "one.key = two.key AND one.at BETWEEN two.at - INTERVAL 3 SECONDS AND two.at + INTERVAL 3 SECONDS"
    return one.join(two, f.expr(near)).selectExpr("one.key", "one.number", "two.number AS other")


def two_operators(rows: DataFrame) -> DataFrame:
    once = rows.withWatermark("at", "5 seconds").dropDuplicatesWithinWatermark(["key", "number"])
    return once.groupBy(f.window("at", "10 seconds")).count()


def stateless(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("key", "number * 2 AS twice")


QUERIES = [
    (update, "update"),
    (update, "complete"),
    (windows, "append"),
    (sessions, "append"),
    (duplicates, "append"),
    (join, "append"),
    (two_operators, "append"),
    (stateless, "append"),
]


@pytest.mark.parametrize(("make", "mode"), QUERIES, ids=lambda value: getattr(value, "__name__", value))
def test_as_without_the_crash(
    spark: SparkSession, tmp_path: Path, make: Any, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Output, state and watermarks after a death behind the decision are those of the query that never died, and the
    epoch is not computed again."""
    caplog.set_level("INFO", "exactum")
    whole = Stream(spark, tmp_path / "whole", make, mode)
    whole.live()
    torn = Stream(spark, tmp_path / "torn", make, mode)
    torn.live(die=True)
    torn.live()
    assert torn.kept()
    assert f"epoch {DIES_AT} stands, with its state" in caplog.text
    assert torn.output() == whole.output()
    assert torn.watermarks() == whole.watermarks()
    if make is not stateless:
        assert torn.state() == whole.state()


def test_a_table_that_changed_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    """The state is that of the output that stands, although the table that the stream is joined with is another now."""

    def weights(weight: int) -> Callable[[], None]:
        rows = [(f"k{n}", weight) for n in range(3)]
        return lambda: spark.createDataFrame(rows, "key string, weight long").createOrReplaceTempView("weights")

    def make(rows: DataFrame) -> DataFrame:
        return rows.join(spark.table("weights"), "key").groupBy().agg(f.sum("weight").alias("total"))

    stream = Stream(spark, tmp_path, make, "update")
    stream.live(die=True, before=weights(1))
    stream.live(before=weights(100))
    totals = sorted(json.loads(line)["total"] for line in stream.output())
    assert totals == [6, 12, 18, 618, 1218], "18 stands, and what came after it rests on it"


def test_state_that_is_not_all_there(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where a file of the state is missing, or empty after a power cut, the epoch is computed once more: it says so."""
    caplog.set_level("INFO", "exactum")
    stream = Stream(spark, tmp_path / "torn", update, "update")
    stream.live(die=True)
    changes = sorted((stream.checkpoint / "state").rglob(f"{DIES_AT + 1}.*"))
    assert changes
    for path in changes:
        if path.name.startswith("."):
            path.unlink()
    changes[-1].write_bytes(b"")
    stream.live()
    assert "is computed once more for its state" in caplog.text
    whole = Stream(spark, tmp_path / "whole", update, "update")
    whole.live()
    assert stream.output() == whole.output()
    assert stream.state() == whole.state()


@pytest.mark.parametrize("besides", [DataFrame.isEmpty, DataFrame.count], ids=["isEmpty", "count"])
def test_state_that_was_written_again(
    spark: SparkSession, tmp_path: Path, besides: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A function that computes the frame besides writes the state again, all of it or a part: exactum notices, computes
    the whole, and warns that state and output may disagree."""
    stream = Stream(spark, tmp_path / "torn", update, "update")
    stream.live(die=True)
    stream.live(besides=besides)
    assert "was written since" in caplog.text
    assert "state and output disagree" in caplog.text
    whole = Stream(spark, tmp_path / "whole", update, "update")
    whole.live()
    assert stream.output() == whole.output()
    assert stream.state() == whole.state()
