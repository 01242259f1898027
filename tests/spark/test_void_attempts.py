"""A batch that was computed before, without a decision, and comes out as another one now: state and
output are those of the attempt that was decided.

Spark's tasks write their state before anything is decided, and its maintenance may make a snapshot
of it while a sink is waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from exactum.errors import SettingRefused
from exactum.spark.run.committed_epochs import ON_DIFFERENCE
from exactum.spark.settings import CHANGELOG
from tests.kit.errors import check_query_error
from tests.kit.spark import stateful
from tests.kit.spark.folder_sink import FolderSink, arm
from tests.kit.spark.query import summed
from tests.kit.spark.state_stores import StateStores
from tests.kit.spark.torn_stream import (
    DIES_AT,
    FORMAT_1,
    FORMAT_2,
    IN_MEMORY,
    Shown,
    Stream,
    configured,
)
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = pytest.mark.spark

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


def fails_undecided(stream: Stream, said: Path) -> None:
    """A life in which everything of epoch ``DIES_AT`` is computed from wrong numbers, and a sink
    fails then.
    """
    other, sinks, epochs = FolderSink(str(stream.folder / "other")), stream.sinks, count()

    def each_batch(frame: DataFrame) -> None:
        if next(epochs) == DIES_AT:
            said.write_text(WRONG)
            arm(Path(other.folder), "prepare", times=50)

    stream.sinks = lambda folder: {"sinks": [*sinks(folder)["sinks"], other]}
    with pytest.raises(Exception, match="injected at prepare"):
        stream.live(besides=each_batch)
    stream.sinks = sinks
    said.write_text(RIGHT)


RARELY = {"spark.sql.streaming.stateStore.maintenanceInterval": "600s"}


def test_those_that_are_loaded_do_no_harm(
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
        fails_undecided(stream, said)
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


def test_one_that_was_decided_is_gone_on_from_in_the_same_process(
    spark: SparkSession, tmp_path: Path, undisturbed: Callable[[Any, str], Shown]
) -> None:
    """However often it fails behind the decision, and whatever Spark does with what is loaded."""
    stores = StateStores(spark)
    stream = Stream(spark, tmp_path / "torn", stateful.update, "update")
    for _ in range(2):
        stream.live(DIES_AT)
        stores.maintain()
    stream.live()
    assert stream.kept(deaths=2)
    assert Shown.of(stream) == undisturbed(stateful.update, "update")


@pytest.mark.parametrize("settings", [FORMAT_1, IN_MEMORY], ids=["rocksdb", "in_memory"])
def test_state_in_format_1_is_refused(
    query: Any, spark: SparkSession, settings: dict[str, str]
) -> None:
    """There nobody can tell to which attempt it belongs. A query without state needs no other
    store, and where it gives the same result each time, its user may say so.
    """
    query.give(1)
    with configured(spark, settings):
        refused = query.run(query.exactly_once(), transform=summed, mode="update")
        check_query_error(refused, SettingRefused, "STATE_FORMAT", "new checkpoint", ON_DIFFERENCE)
        assert query.values("visible") == []
        with configured(spark, {ON_DIFFERENCE: "warn"}):
            assert query.run(query.exactly_once(), transform=summed, mode="update") is None
        assert query.values() == [1]


def test_a_query_without_state_may_have_any_store(query: Any, spark: SparkSession) -> None:
    query.give(1)
    with configured(spark, IN_MEMORY):
        assert query.run(query.exactly_once()) is None
    assert query.values() == [1]


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

    with configured(spark, {**FORMAT_2, CHANGELOG: "false"}):
        for value in (1, 3, 5):
            query.give(value)
            assert query.run(batch, transform=summed, mode="update") is None
            once = query.exactly_once().for_each_batch(checkpoint=query.checkpoint)
    assert query.values() == [1, 4, 9]
