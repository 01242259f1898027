"""A batch that was computed before, without a decision, and comes out as another one now: state and
output are those of the attempt that was decided.

Spark's tasks write their state before anything is decided, and its maintenance may make a snapshot
of it while a sink is waited for.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import exactum
from exactum.errors import EpochAborted
from tests.kit.errors import check_query_error
from tests.kit.spark import folder_sink, stateful
from tests.kit.spark.folder_sink import FolderSink, arm
from tests.kit.spark.state_stores import StateStores
from tests.kit.spark.torn_stream import (
    CHANGELOG,
    DIES_AT,
    IN_MEMORY,
    RUN_TIMEOUT_S,
    Shown,
    Stream,
    configured,
)
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = pytest.mark.spark

VERSION = DIES_AT + 1
RIGHT, WRONG = "0", "1000"


def mistaken(make: Any, said: Path) -> Callable[[DataFrame], DataFrame]:
    """``make`` over numbers to each of which is added what the file ``said`` says, when they are
    computed. That waits while there is a file ``held`` beside it, and makes one ``waits``.
    """
    held, waits = said.with_name("held"), said.with_name("waits")

    def say() -> int:
        while held.exists():
            waits.touch()
            time.sleep(0.02)
        return int(said.read_text())

    def of(rows: DataFrame) -> DataFrame:
        added = f.udf(lambda number: number + say(), "long")
        return make(rows.withColumn("number", added.asNondeterministic()("number")))

    return of


def fails_undecided(stream: Stream, said: Path, with_snapshots: bool = True) -> None:
    """A life in which everything of epoch ``DIES_AT`` is computed from wrong numbers, and a sink
    fails then. It ends when Spark has made snapshots of that state, or at once.
    """
    other = FolderSink(str(stream.folder / "other"))
    exact = exactum.exactly_once(
        *stream.sinks(stream.folder)["sinks"], other, **stream.settings
    ).for_each_batch(checkpoint=stream.location)

    def snapshots_are_made() -> bool:
        deltas = list((stream.checkpoint / "state").rglob(f"{VERSION}.delta"))
        return bool(deltas) and all(path.with_suffix(".snapshot").exists() for path in deltas)

    def each_batch(frame: DataFrame, batch_id: int) -> None:
        if batch_id == DIES_AT:
            said.write_text(WRONG)
            arm(Path(other.folder), "prepare", times=50)
        try:
            exact(frame, batch_id)
        except Exception:
            if with_snapshots:
                await_true(snapshots_are_made, "a snapshot of each store")
            raise

    rows = (
        stream.spark.readStream.schema("key string, number long, at timestamp")
        .option("maxFilesPerTrigger", 1)
        .json(str(stream.folder / "input"))
    )
    writer = stream.make(rows).writeStream.foreachBatch(each_batch).outputMode(stream.mode)
    query = writer.option("checkpointLocation", stream.location).trigger(availableNow=True).start()
    with pytest.raises(Exception, match="injected at prepare"):
        query.awaitTermination(RUN_TIMEOUT_S)
    query.stop()
    said.write_text(RIGHT)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("make", "mode", "mounts"),
    [
        (stateful.update, "update", False),
        (stateful.update, "update", True),
        pytest.param(stateful.full_outer, "append", False, marks=pytest.mark.deep),
    ],
    ids=["update", "update-where_only_hadoop_knows", "full_outer"],
)
def test_their_snapshots_are_not_loaded(
    spark: SparkSession,
    tmp_path: Path,
    undisturbed: Callable[[Any, str], Shown],
    make: Any,
    mode: str,
    mounts: bool,
) -> None:
    how: dict[str, Any] = {}
    if mounts:
        mounted = f"void{secrets.token_hex(4)}"  # Hadoop remembers what it has mounted
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        configuration.set(f"fs.viewfs.mounttable.{mounted}.linkFallback", tmp_path.as_uri())
        how["named"] = lambda folder: f"viewfs://{mounted}/{folder.relative_to(tmp_path)}"
        how["decision_log"] = tmp_path / "decisions"
    expected = undisturbed(make, mode)
    said = tmp_path / "said"
    said.write_text(RIGHT)
    with configured(spark, IN_MEMORY):
        stream = Stream(spark, tmp_path / "torn", mistaken(make, said), mode, **how)
        fails_undecided(stream, said)
        stream.live(DIES_AT)  # the attempt that counts; the next life loads the state that it left
        stream.live()
        assert stream.kept()
        assert Shown.of(stream) == expected


RARELY = {"spark.sql.streaming.stateStore.maintenanceInterval": "600s"}


@pytest.mark.variants(1)
@pytest.mark.parametrize("store", [IN_MEMORY, {CHANGELOG: "true"}], ids=["in_memory", "rocksdb"])
def test_no_store_of_theirs_makes_a_snapshot_in_a_later_run_of_the_same_process(
    spark: SparkSession,
    tmp_path: Path,
    undisturbed: Callable[[Any, str], Shown],
    store: dict[str, str],
) -> None:
    expected = undisturbed(stateful.update, "update")
    stores = StateStores(spark)
    said, held, waits = (tmp_path / name for name in ("said", "held", "waits"))
    said.write_text(RIGHT)
    stores.stop_maintenance()
    with configured(spark, {**store, **RARELY}):
        other = Stream(spark, tmp_path / "other", stateful.update, "update")
        other.live()
        of_another = stores.loaded()
        stream = Stream(spark, tmp_path / "torn", mistaken(stateful.update, said), "update")
        fails_undecided(stream, said, with_snapshots=False)
        assert stores.loaded() > of_another, "nothing is left that could come back"
        held.touch()
        left: set[str] = set()

        def maintain_meanwhile() -> None:
            try:
                await_true(waits.exists, "the attempt that counts has begun")
                left.update(stores.loaded())
                stores.maintain()
            finally:
                held.unlink()

        beside = threading.Thread(target=maintain_meanwhile, name="maintain-meanwhile")
        beside.start()
        stream.live(DIES_AT)
        beside.join(WAIT_MAX_S)
        stores.maintain()
        stream.live()
        shown = Shown.of(stream)
    stores.stop_maintenance()  # the next query has an interval of its own
    assert stream.kept()
    assert shown == expected
    assert left == of_another


@pytest.mark.deep
def test_a_cluster_refuses_to_compute_them_again_in_the_same_application(tmp_path: Path) -> None:
    """Their stores are loaded in executors, where nobody can unload them."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.spark.cluster_job", str(tmp_path)],
        env={
            **os.environ,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        stdout=subprocess.PIPE,
        text=True,
        timeout=4 * WAIT_MAX_S,
        check=True,
    )
    failed, refused, accepted, later = done.stdout.splitlines()
    assert "injected at prepare" in failed
    check_query_error(refused, EpochAborted, "micro-batch 0")
    assert (accepted, later) == ("well", "well")
    rows = folder_sink.rows(tmp_path / "out")
    assert sorted(row["total"] for row in rows) == [1, 2]


def test_a_batch_that_was_computed_before_exactum_is_called(
    query: Any, spark: SparkSession
) -> None:
    """Persisted and counted, so the write job does not compute it again. RocksDB without changes
    has written the whole version by then.
    """
    once = query.exactly_once().for_each_batch(checkpoint=query.checkpoint)

    def batch(frame: DataFrame, batch_id: int) -> None:
        frame.persist()
        frame.count()
        once(frame, batch_id)
        frame.unpersist()

    def summed(frame: DataFrame) -> DataFrame:
        return frame.groupBy("k").agg(f.sum("v").alias("v"))

    with configured(spark, {CHANGELOG: "false"}):
        for value in (1, 3, 5):
            query.give(value)
            assert query.run(batch, transform=summed, mode="update") is None
            once = query.exactly_once().for_each_batch(checkpoint=query.checkpoint)
    assert query.values() == [1, 4, 9]
