"""A stream-stream join has four state stores in each partition; all of them are in its
savepoint. No broker.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import exactum
from exactum.checkpoint.request_file import stop
from exactum.checkpoint.savepoint.create import create
from exactum.checkpoint.savepoint.restore import restore
from exactum.spark.run.standing_epochs import ON_DIFFERENCE
from exactum.spark.settings import FORMAT
from exactum.storage.folder import Folder
from tests.kit.spark.commit_log import last_batch
from tests.kit.spark.torn_stream import IN_MEMORY, configured
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.spark

ACCEPTED = {ON_DIFFERENCE: "warn"}
"""Where the query gives the same result each time, its state may be in format 1."""
SETTINGS = {
    "format_2": {},
    "format_1": {FORMAT: "1", **ACCEPTED},
    "memory": {**IN_MEMORY, **ACCEPTED},
}
LEFT, RIGHT, KEYS = 20, 5, 37
"""Rows of each side in an epoch, and how many keys there are."""


def numbers(spark: SparkSession, rows: int, name: str) -> DataFrame:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
    return stream.selectExpr(f"value % {KEYS} AS k", f"value AS {name}")


@contextlib.contextmanager
def running(spark: SparkSession, checkpoint: Path, output: Path, until: int) -> Iterator[None]:
    """The join on its way, this epoch done; stopped at the end, if nobody has."""
    joined = numbers(spark, LEFT, "a").join(numbers(spark, RIGHT, "b"), "k")
    query = exactum.exactly_once(exactum.FileSink(str(output), format="json")).start(
        joined.writeStream.trigger(processingTime="0 seconds"), checkpoint=checkpoint
    )
    try:
        while not (checkpoint / "commits" / str(until)).exists():
            assert query.isActive, query.exception()
            time.sleep(0.02)
        yield
    finally:
        query.stop()


@pytest.mark.deep
@pytest.mark.parametrize("kind", SETTINGS)
def test_a_join_goes_on_from_its_savepoint(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """The original is gone; pairs of a row from before the savepoint and one from after it are
    all there, once each.
    """
    output, fork = tmp_path / "out", tmp_path / "fork"
    with configured(spark, SETTINGS[kind]):
        with running(spark, tmp_path / "checkpoint", output, until=3):
            made = create(str(tmp_path / "checkpoint"), tmp_path / "savepoint", stop_query=True)
        assert [(o.partitions, o.stores) for o in made.operators] == [(2, 8)]
        # Renamed, not removed: a state store's maintenance may still be writing a file.
        (tmp_path / "checkpoint").rename(tmp_path / "gone")
        restore(tmp_path / "savepoint", str(fork))
        with running(spark, fork, output, until=made.batch_id + 2):
            stop(Folder(fork), timeout_s=WAIT_MAX_S)
    epochs = 1 + last_batch(fork)
    left, right = (
        [(value % KEYS, value) for value in range(rows * epochs)] for rows in (LEFT, RIGHT)
    )
    wanted = sorted((a, b) for key, a in left for other, b in right if key == other)
    assert sorted((row.a, row.b) for row in spark.read.json(str(output)).collect()) == wanted
