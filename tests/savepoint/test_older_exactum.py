"""A checkpoint, a decision log and a savepoint that an older exactum wrote: this one goes on with
them.

``data/older.tar.gz`` was written by exactum 0.1.0.dev0 (commit 12b3255) with Spark 4.2. The query
sums for each of three keys ten numbers a micro-batch, into JSON files. Its epoch 3 stands in the
table, and Spark's commit log does not have it. The savepoint is of epoch 1.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import exactum
from exactum.checkpoint.savepoint.restore import restore
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.spark

DATA = Path(__file__).parent / "data" / "older.tar.gz"
RUN_TIMEOUT_S = WAIT_MAX_S
LAST = 5


class Enough(Exception):
    """Epoch ``LAST`` stands."""


def go_on(spark: SparkSession, checkpoint: Path, table: Path) -> None:
    """The query of the older exactum, up to epoch ``LAST``."""
    source = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 10)
        .option("numPartitions", 2)
    )
    rows = (
        source.option("startTimestamp", 1_700_000_000_000)
        .option("advanceMillisPerBatch", 1_000)
        .load()
    )
    keyed = rows.withWatermark("timestamp", "1 second").selectExpr("value % 3 AS k", "value")
    totals = keyed.groupBy("k").sum("value").withColumnRenamed("sum(value)", "total")
    exact = exactum.exactly_once(exactum.FileSink(table, format="json", name="totals"))

    def each_batch(frame: DataFrame, batch_id: int) -> None:
        if batch_id > LAST:
            raise Enough
        exact(frame, batch_id)

    writer = totals.writeStream.foreachBatch(each_batch).outputMode("update")
    query = (
        writer.option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        with pytest.raises(Exception, match="Enough"):
            query.awaitTermination(RUN_TIMEOUT_S)
    finally:
        query.stop()


def rows_of(table: Path) -> list[tuple[int, int]]:
    lines = [line for path in table.glob("part-*") for line in path.read_text().splitlines()]
    return sorted((row["k"], row["total"]) for row in map(json.loads, lines))


def totals_after(epochs: range) -> list[tuple[int, int]]:
    """What each epoch of ``epochs`` writes: the sums of all numbers up to its end."""
    ends = [10 * (epoch + 1) for epoch in epochs]
    return sorted(
        (key, sum(n for n in range(end) if n % 3 == key)) for end in ends for key in range(3)
    )


@pytest.fixture
def older(tmp_path: Path) -> Path:
    with tarfile.open(DATA) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def test_a_checkpoint_and_its_decision_log(spark: SparkSession, older: Path, caplog: Any) -> None:
    """It goes on behind the epoch that stands, with the state that epoch has left."""
    caplog.set_level("INFO", "exactum")
    assert rows_of(older / "table") == totals_after(range(4))
    go_on(spark, older / "checkpoint", older / "table")
    assert "epoch 3 stands, with its state" in caplog.text
    assert rows_of(older / "table") == totals_after(range(LAST + 1))


def test_a_savepoint(spark: SparkSession, older: Path) -> None:
    """A fork of it goes on behind the savepoint's epoch."""
    restore(older / "savepoint", str(older / "fork"))
    go_on(spark, older / "fork", older / "table of the fork")
    assert rows_of(older / "table of the fork") == totals_after(range(2, LAST + 1))
