"""A batch that was computed before, without a decision, and comes out as another one now: state and
output are those of the attempt that was decided.

Spark's tasks write their state before anything is decided, and its maintenance may make a snapshot
of it while a sink is waited for.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import exactum
from exactum.errors import EpochAborted
from exactum.spark.run.standing_epochs import ON_DIFFERENCE
from tests.kit.errors import check_query_error
from tests.kit.spark import stateful
from tests.kit.spark.folder_sink import FolderSink, arm
from tests.kit.spark.state_stores import StateStores, new_process
from tests.kit.spark.torn_stream import (
    CHANGELOG,
    DIES_AT,
    EPOCHS,
    FORMAT_2,
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
    monkeypatch: pytest.MonkeyPatch,
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
        new_process(spark, monkeypatch)
        stream.live(DIES_AT)  # the attempt that counts; the next life loads the state that it left
        stream.live()
        assert stream.kept()
        assert Shown.of(stream) == expected


RARELY = {"spark.sql.streaming.stateStore.maintenanceInterval": "600s"}


def test_in_format_2_those_that_are_loaded_do_no_harm(
    spark: SparkSession, tmp_path: Path, undisturbed: Callable[[Any, str], Shown]
) -> None:
    """The query is started again in the same process. Spark makes a last snapshot of the state of
    its failed run while the attempt that counts is under way."""
    expected = undisturbed(stateful.update, "update")
    stores = StateStores(spark)
    said, held, waits = (tmp_path / name for name in ("said", "held", "waits"))
    said.write_text(RIGHT)
    stores.stop_maintenance()
    with configured(spark, {**FORMAT_2, **RARELY}):
        stream = Stream(spark, tmp_path / "torn", mistaken(stateful.update, said), "update")
        before = stores.loaded()
        fails_undecided(stream, said, with_snapshots=False)
        assert stores.loaded() > before, "nothing is left that could come back"
        held.touch()

        def maintain_meanwhile() -> None:
            try:
                await_true(waits.exists, "the attempt that counts has begun")
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


@pytest.mark.variants(1)
@pytest.mark.parametrize("store", [IN_MEMORY, {CHANGELOG: "true"}], ids=["in_memory", "rocksdb"])
def test_in_format_1_they_are_not_computed_again_in_the_same_process(
    spark: SparkSession,
    tmp_path: Path,
    undisturbed: Callable[[Any, str], Shown],
    monkeypatch: pytest.MonkeyPatch,
    store: dict[str, str],
) -> None:
    """What is loaded of them could come back at any time. A new process has nothing of it."""
    expected = undisturbed(stateful.update, "update")
    said = tmp_path / "said"
    said.write_text(RIGHT)
    with configured(spark, store):
        stream = Stream(spark, tmp_path / "torn", mistaken(stateful.update, said), "update")
        fails_undecided(stream, said, with_snapshots=False)
        for _ in range(2):
            with pytest.raises(StreamingQueryException) as ended:
                stream.live()
            check_query_error(str(ended.value), EpochAborted, f"micro-batch {DIES_AT}")
        new_process(spark, monkeypatch)
        stream.live(DIES_AT)
        stream.live()
        assert stream.kept()
        assert Shown.of(stream) == expected


@pytest.mark.deep
def test_in_format_1_that_may_be_accepted(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = tmp_path / "said"
    said.write_text(RIGHT)
    with configured(spark, IN_MEMORY):
        stream = Stream(spark, tmp_path / "torn", mistaken(stateful.update, said), "update")
        fails_undecided(stream, said, with_snapshots=False)
        with configured(spark, {ON_DIFFERENCE: "warn"}):
            stream.live()
    assert f"micro-batch {DIES_AT} was computed before" in caplog.text
    assert len(stream.output()) == 3 * EPOCHS


@pytest.mark.variants(1)
@pytest.mark.parametrize("settings", [IN_MEMORY, FORMAT_2], ids=["in_memory", "format_2"])
def test_one_that_was_decided_is_gone_on_from_in_the_same_process(
    spark: SparkSession,
    tmp_path: Path,
    undisturbed: Callable[[Any, str], Shown],
    settings: dict[str, str],
) -> None:
    """However often it fails behind the decision, and whatever Spark does with what is loaded."""
    stores = StateStores(spark)
    with configured(spark, settings):
        stream = Stream(spark, tmp_path / "torn", stateful.update, "update")
        for _ in range(2):
            stream.live(DIES_AT)
            stores.maintain()
        stream.live()
        assert stream.kept(deaths=2)
        assert Shown.of(stream) == undisturbed(stateful.update, "update")


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
