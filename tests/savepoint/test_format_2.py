"""Savepoints of a query whose state is in Spark's checkpoint format 2: of the attempts at a
micro-batch, whose files lie side by side, those that count. No broker.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import exactum
from exactum.checkpoint.savepoint.create import create
from exactum.checkpoint.savepoint.manifest import verify
from exactum.checkpoint.savepoint.restore import restore
from exactum.storage.folder import Folder
from tests.kit.spark.ended import ended
from tests.kit.spark.files import InputFiles, rows_in, stream_of
from tests.kit.spark.folder_sink import FolderSink, arm
from tests.kit.spark.state_stores import StateStores
from tests.kit.spark.torn_stream import configured

pytestmark = pytest.mark.spark

KEYS = 5
VERSION = re.compile(r".*/(\d+)_([0-9a-f-]{36})\.(?:zip|changelog)")
SNAPSHOTS = {"spark.sql.streaming.stateStore.minDeltasForSnapshot": "2"}
RETAINED = "spark.sql.streaming.minBatchesToRetain"


class Sums:
    """Files of numbers, each of which is one micro-batch, and the sums of their keys so far."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.files = InputFiles(folder / "input")
        self.sums: Counter[str] = Counter()
        self.expected: list[tuple[str, int]] = []

    def give(self, count: int) -> None:
        for _ in range(count):
            numbers = {f"k{n}": 10 * self.files.count + n for n in range(KEYS)}
            self.sums.update(numbers)
            self.expected += self.sums.items()
            self.files.give({"key": key, "number": number} for key, number in numbers.items())

    def run(self, checkpoint: Path, *others: FolderSink) -> None:
        rows = stream_of(self.spark, self.files.folder, "key string, number long")
        sums = rows.groupBy("key").agg(f.sum("number").alias("total"))
        out = exactum.FileSink(self.folder / f"{checkpoint.name}-out", format="json")
        exact = exactum.exactly_once(out, *others)
        writer = sums.writeStream.outputMode("update").trigger(availableNow=True)
        if error := ended(lambda: exact.start(writer, checkpoint=checkpoint)):
            raise error

    def written(self, *checkpoints: Path) -> list[tuple[str, int]]:
        folders = [self.folder / f"{checkpoint.name}-out" for checkpoint in checkpoints]
        rows = [row for folder in folders for row in rows_in(folder)]
        return sorted((row["key"], row["total"]) for row in rows)


def attempts(folder: Path, version: int) -> set[str]:
    """The ids of the attempts at a version of the state that lie below a folder."""
    found = [VERSION.fullmatch(str(path)) for path in folder.rglob("*")]
    return {one[2] for one in found if one is not None and int(one[1]) == version}


@pytest.mark.parametrize(
    "retained",
    [
        pytest.param("100", id="all_in_the_commit_log"),
        pytest.param("2", id="most_forgotten", marks=pytest.mark.deep),
    ],
)
def test_the_attempts_that_count(spark: SparkSession, tmp_path: Path, retained: str) -> None:
    """The state of an attempt that was never decided lies beside, changes and snapshot. A fork goes
    on exactly, and so does a fork of that."""
    stores, sums = StateStores(spark), Sums(spark, tmp_path)
    original, fork, second = (tmp_path / name for name in ("original", "fork", "second"))
    other = FolderSink(str(tmp_path / "other"))
    with configured(spark, {**SNAPSHOTS, RETAINED: retained}):
        sums.give(5)
        sums.run(original, other)
        stores.maintain()
        sums.give(1)
        arm(Path(other.folder), "prepare", times=50)
        with pytest.raises(Exception, match="injected at prepare"):
            sums.run(original, other)
        void = attempts(original, 6)
        assert void
        stores.maintain()
        shutil.rmtree(Path(other.folder) / "faults")
        sums.run(original, other)
        sums.give(3)
        sums.run(original, other)
        stores.maintain()
        made = create(str(original), tmp_path / "savepoint")
        assert made.batch_id == 8
        assert any(file.path.endswith(".zip") for file in made.files)
        if retained == "100":
            assert not void & attempts(tmp_path / "savepoint", 6)
        assert verify(Folder(tmp_path / "savepoint")) == made

        original.rename(tmp_path / "gone")
        restore(tmp_path / "savepoint", str(fork))
        sums.give(2)
        sums.run(fork)
        create(str(fork), tmp_path / "savepoint-of-fork")
        fork.rename(tmp_path / "gone-too")
        restore(tmp_path / "savepoint-of-fork", str(second))
        sums.give(4)
        sums.run(second)
        stores.maintain()
    assert sums.written(original, fork, second) == sorted(sums.expected)
