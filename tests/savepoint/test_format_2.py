"""Savepoints of a query whose state is in Spark's checkpoint format 2: of the attempts at a
micro-batch, whose files lie side by side, those that count. No broker.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactum.checkpoint.savepoint.create import create, delete
from exactum.checkpoint.savepoint.manifest import verify
from exactum.checkpoint.savepoint.restore import restore
from exactum.storage.folder import Folder
from tests.kit.spark.folder_sink import FolderSink, arm, disarm
from tests.kit.spark.query import Query, summed
from tests.kit.spark.state_stores import StateStores
from tests.kit.spark.torn_stream import configured

pytestmark = pytest.mark.spark

VERSION = re.compile(r".*/(\d+)_([0-9a-f-]{36})\.(?:zip|changelog)")
SNAPSHOTS = {"spark.sql.streaming.stateStore.minDeltasForSnapshot": "2"}
RETAINED = "spark.sql.streaming.minBatchesToRetain"


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
def test_the_attempts_that_count(
    spark: SparkSession, query: Query, tmp_path: Path, retained: str
) -> None:
    """The state of an attempt that was never decided lies beside, changes and snapshot. A fork goes
    on exactly, and so does a fork of that."""
    stores, other = StateStores(spark), FolderSink(str(tmp_path / "other"))

    def run(batches: int, *others: FolderSink) -> str | None:
        """Over so many more, into one folder whatever the checkpoint is."""
        query.give(*range(6), batches=batches)
        once = query.exactly_once(query.sink, *others)
        return query.run(once, transform=summed, mode="update")

    with configured(spark, {**SNAPSHOTS, RETAINED: retained}):
        assert run(5, other) is None
        stores.maintain()
        arm(Path(other.folder), "prepare", times=50)
        assert "injected at prepare" in str(run(1, other))
        void = attempts(query.checkpoint, 6)
        assert void
        stores.maintain()
        disarm(Path(other.folder))
        assert run(0, other) is None
        create(str(query.checkpoint), tmp_path / "early")
        assert attempts(tmp_path / "early", 6) and not void & attempts(tmp_path / "early", 6)
        assert run(3, other) is None
        stores.maintain()
        made = create(str(query.checkpoint), tmp_path / "savepoint")
        assert made.batch_id == 8
        assert any(file.path.endswith(".zip") for file in made.files)
        if retained == "100":
            assert not void & attempts(tmp_path / "savepoint", 6)
        assert verify(Folder(tmp_path / "savepoint")) == made

        for number, batches in enumerate((2, 4)):
            query.checkpoint.rename(tmp_path / f"gone-{number}")
            query.checkpoint = tmp_path / f"fork-{number}"
            restore(tmp_path / "savepoint", str(query.checkpoint))
            assert run(batches) is None
            delete(tmp_path / "savepoint")
            create(str(query.checkpoint), tmp_path / "savepoint")
        stores.maintain()
    even, odd = 0 + 2 + 4, 1 + 3 + 5
    assert query.values() == sorted(n * one for n in range(1, 16) for one in (even, odd))
