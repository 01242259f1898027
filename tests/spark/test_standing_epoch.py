"""An epoch that stands and is not in Spark's commit log: the query goes on with the state that
belongs to its output.

The oracle is the same query without a crash: its output, its state as Spark's own reader shows it,
its watermarks.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout

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

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        make: Callable[[DataFrame], DataFrame],
        mode: str,
        named: Callable[[Path], str] = str,
        **settings: Any,
    ) -> None:
        """``named``: the checkpoint's folder as Spark is told it. ``settings``: of exactum."""
        self.spark, self.folder, self.make, self.mode = spark, folder, make, mode
        self.checkpoint = folder / "checkpoint"
        self.location, self.settings = named(self.checkpoint), settings
        (folder / "input").mkdir(parents=True)
        self.events: list[Any] = []
        began_s = time.time() - 1_000
        for epoch in range(EPOCHS):
            path = folder / "input" / f"{epoch}.json"
            rows = [
                {"key": f"k{n % 3}", "number": 10 * epoch + n, "at": at(epoch, n)} for n in range(6)
            ]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(path, (began_s + epoch,) * 2)  # Spark takes them by age

    def live(
        self,
        die: bool = False,
        before: Callable[[], None] = lambda: None,
        besides: Callable[[DataFrame], object] = lambda frame: None,
    ) -> None:
        """One life over all input; with ``die`` it ends when epoch ``DIES_AT`` stands. ``besides``
        is what the function does with the frame before it calls exactum."""
        before()
        sink = exactum.FileSink(self.folder / "out", format="json")
        exact = exactum.exactly_once(sink, on_event=self.events.append, **self.settings)

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
            .option("checkpointLocation", self.location)
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
        return sorted(
            line
            for path in (self.folder / "out").glob("part-*")
            for line in path.read_text().splitlines()
        )

    def watermarks(self) -> list[Any]:
        logged = sorted(
            (p for p in (self.checkpoint / "commits").iterdir() if p.name.isdigit()),
            key=lambda p: int(p.name),
        )
        return [
            json.loads(path.read_text().splitlines()[1])["nextBatchWatermarkMs"] for path in logged
        ]

    def state(self) -> list[str]:
        """Of every operator and store, as Spark's own reader shows it."""
        found: list[str] = []
        described = self.spark.read.format("state-metadata").load(str(self.checkpoint)).collect()
        for one in described:
            options = {"operatorId": one.operatorId}
            if one.stateStoreName != "default":
                options["storeName"] = one.stateStoreName
            parts = [options]
            if one.operatorName.startswith("transformWithState"):
                parts = [
                    {**options, "stateVarName": "total"},
                    {**options, "readRegisteredTimers": "true"},
                ]
            for part in parts:
                rows = (
                    self.spark.read.format("statestore")
                    .options(**part)
                    .load(str(self.checkpoint))
                    .collect()
                )
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
    return (
        rows.withWatermark("at", "5 seconds").groupBy(f.window("at", "10 seconds"), "key").count()
    )


def sessions(rows: DataFrame) -> DataFrame:
    return (
        rows.withWatermark("at", "2 seconds")
        .groupBy(f.session_window("at", "2 seconds"), "key")
        .count()
    )


def duplicates(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "30 seconds").dropDuplicatesWithinWatermark(["key"])


def join(rows: DataFrame) -> DataFrame:
    one = rows.withWatermark("at", "5 seconds").alias("one")
    two = rows.withWatermark("at", "7 seconds").alias("two")
    near = (
        "one.key = two.key AND one.at BETWEEN two.at - INTERVAL 3 SECONDS AND two.at + INTERVAL 3 "
        "SECONDS"
    )
    return one.join(two, f.expr(near)).selectExpr("one.key", "one.number", "two.number AS other")


def seen_before(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["key", "number"])


def first_ones(rows: DataFrame) -> DataFrame:
    return rows.select("key", "number").limit(15)


def groups(rows: DataFrame) -> DataFrame:
    """A sum for each key, and a last word of each that was quiet for a while of event time."""

    def fold(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        before = state.get[0] if state.exists else 0
        if state.hasTimedOut:
            state.remove()
            yield pd.DataFrame({"key": [f"{key[0]} is quiet"], "total": [before]})
            return
        total = before + sum(int(frame["number"].sum()) for frame in frames)
        state.update((total,))
        state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 3_000)
        yield pd.DataFrame({"key": [key[0]], "total": [total]})

    marked = rows.withWatermark("at", "5 seconds")
    kept = "key string, total long", "total long", "append", GroupStateTimeout.EventTimeTimeout
    return marked.groupBy("key").applyInPandasWithState(fold, *kept)


class Sums(StatefulProcessor):
    """The same as ``groups``, with a timer."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._total = handle.getValueState("total", "total long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        total = (self._total.get()[0] if self._total.exists() else 0) + sum(
            int(row.number) for row in rows
        )
        self._total.update((total,))
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 3_000)
        yield Row(key=key[0], total=total)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        total = self._total.get()[0]
        self._total.clear()
        yield Row(key=f"{key[0]} is quiet", total=total)

    def close(self) -> None:
        pass


def timers(rows: DataFrame) -> DataFrame:
    marked = rows.withWatermark("at", "5 seconds")
    return marked.groupBy("key").transformWithState(
        Sums(), "key string, total long", "append", "eventTime"
    )


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
    (seen_before, "append"),
    (first_ones, "append"),
    (groups, "append"),
    (timers, "append"),
    (two_operators, "append"),
    (stateless, "append"),
]

FORMAT_2 = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@contextmanager
def configured(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """A session with these settings, which the queries that start meanwhile take over."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)


@dataclass(frozen=True)
class Shown:
    """What a query without a crash shows at its end."""

    output: list[str]
    watermarks: list[Any]
    state: list[str]

    @staticmethod
    def of(stream: Stream) -> Shown:
        state = [] if stream.make is stateless else stream.state()
        return Shown(stream.output(), stream.watermarks(), state)


AsWithoutTheCrash = Callable[..., None]


@pytest.fixture(scope="module")
def undisturbed(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Any, str], Shown]:
    """The query without a crash, run once: neither the format of its checkpoint nor where that lies
    may change what it shows.
    """

    @cache
    def shown(make: Any, mode: str) -> Shown:
        whole = Stream(spark, tmp_path_factory.mktemp("whole"), make, mode)
        whole.live()
        return Shown.of(whole)

    return shown


@pytest.fixture
def as_without_the_crash(
    spark: SparkSession,
    tmp_path: Path,
    undisturbed: Callable[[Any, str], Shown],
    caplog: pytest.LogCaptureFixture,
) -> AsWithoutTheCrash:
    """Output, state and watermarks after a death behind the decision are those of the query that
    never died, and the epoch is not computed again."""

    def holds(make: Any, mode: str, **settings: Any) -> None:
        expected = undisturbed(make, mode)
        caplog.set_level("INFO", "exactum")
        torn = Stream(spark, tmp_path / "torn", make, mode, **settings)
        torn.live(die=True)
        torn.live()
        assert torn.kept()
        assert f"epoch {DIES_AT} stands, with its state" in caplog.text
        assert Shown.of(torn) == expected

    return holds


def each_query(*at_length: Any) -> Any:
    """Every query of the table; those with these transformations in the runs at length only."""
    marks = [
        pytest.param(make, mode, marks=pytest.mark.deep if make in at_length else ())
        for make, mode in QUERIES
    ]
    return pytest.mark.parametrize(
        ("make", "mode"), marks, ids=lambda value: getattr(value, "__name__", value)
    )


@each_query(seen_before, first_ones)
def test_as_without_the_crash(
    as_without_the_crash: AsWithoutTheCrash, make: Any, mode: str
) -> None:
    as_without_the_crash(make, mode)


@each_query(*(make for make, _ in QUERIES if make is not timers))
def test_in_checkpoint_format_2(
    spark: SparkSession, as_without_the_crash: AsWithoutTheCrash, make: Any, mode: str
) -> None:
    """Every version of a state has an id there, which Spark takes from the plan that was
    executed.
    """
    with configured(spark, FORMAT_2):
        as_without_the_crash(make, mode)


@pytest.mark.deep
def test_in_checkpoint_format_2_with_whole_snapshots(
    spark: SparkSession, as_without_the_crash: AsWithoutTheCrash
) -> None:
    with configured(spark, {**FORMAT_2, CHANGELOG: "false"}):
        as_without_the_crash(update, "update")


@pytest.mark.parametrize(
    ("make", "mode", "settings"),
    [
        pytest.param(update, "update", {}, id="update-format_1"),
        pytest.param(update, "update", FORMAT_2, id="update-format_2", marks=pytest.mark.deep),
        pytest.param(join, "append", {}, id="join-format_1", marks=pytest.mark.deep),
        pytest.param(join, "append", FORMAT_2, id="join-format_2"),
    ],
)
def test_on_a_file_system_that_only_hadoop_knows(
    spark: SparkSession,
    tmp_path: Path,
    as_without_the_crash: AsWithoutTheCrash,
    make: Any,
    mode: str,
    settings: Any,
) -> None:
    """The files of the state are looked for where Spark has them: in an object store as in this
    view of a folder.
    """
    mounted = f"standing{secrets.token_hex(4)}"  # Hadoop remembers what it has mounted
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set(f"fs.viewfs.mounttable.{mounted}.linkFallback", tmp_path.as_uri())

    def named(folder: Path) -> str:
        return f"viewfs://{mounted}/{folder.relative_to(tmp_path)}"

    with configured(spark, settings):
        as_without_the_crash(make, mode, named=named, decision_log=tmp_path / "decisions")


def test_a_table_that_changed_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    """The state is that of the output that stands, although the table that the stream is joined
    with is another now.
    """

    def weights(weight: int) -> Callable[[], None]:
        rows = [(f"k{n}", weight) for n in range(3)]
        return lambda: spark.createDataFrame(
            rows, "key string, weight long"
        ).createOrReplaceTempView("weights")

    def make(rows: DataFrame) -> DataFrame:
        return (
            rows.join(spark.table("weights"), "key").groupBy().agg(f.sum("weight").alias("total"))
        )

    stream = Stream(spark, tmp_path, make, "update")
    stream.live(die=True, before=weights(1))
    stream.live(before=weights(100))
    totals = sorted(json.loads(line)["total"] for line in stream.output())
    assert totals == [6, 12, 18, 618, 1218], "18 stands, and what came after it rests on it"


def test_state_that_is_not_all_there(
    spark: SparkSession,
    tmp_path: Path,
    undisturbed: Callable[[Any, str], Shown],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where a file of the state is missing, or empty after a power cut, the epoch is computed
    once more: it says so.
    """
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
    whole = undisturbed(update, "update")
    assert (stream.output(), stream.state()) == (whole.output, whole.state)


@pytest.mark.parametrize("besides", [DataFrame.isEmpty, DataFrame.count], ids=["isEmpty", "count"])
def test_state_that_was_written_again(
    spark: SparkSession,
    tmp_path: Path,
    undisturbed: Callable[[Any, str], Shown],
    besides: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A function that computes the frame besides writes the state again, all of it or a part:
    exactum notices, computes the whole, and warns that state and output may disagree."""
    stream = Stream(spark, tmp_path / "torn", update, "update")
    stream.live(die=True)
    stream.live(besides=besides)
    assert "was written since" in caplog.text
    assert "state and output disagree" in caplog.text
    whole = undisturbed(update, "update")
    assert (stream.output(), stream.state()) == (whole.output, whole.state)


@pytest.mark.parametrize("besides", [DataFrame.isEmpty, DataFrame.count], ids=["isEmpty", "count"])
def test_other_versions_beside_it_in_format_2(
    spark: SparkSession, tmp_path: Path, besides: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What a function computes besides is another version there: Spark goes on with the one that
    belongs to the output, although a table that the stream is joined with has changed."""
    caplog.set_level("INFO", "exactum")

    def weights(weight: int) -> Callable[[], None]:
        rows = [(f"k{n}", weight) for n in range(3)]
        return lambda: spark.createDataFrame(
            rows, "key string, weight long"
        ).createOrReplaceTempView("weights")

    def make(rows: DataFrame) -> DataFrame:
        return (
            rows.join(spark.table("weights"), "key").groupBy().agg(f.sum("weight").alias("total"))
        )

    with configured(spark, FORMAT_2):
        stream = Stream(spark, tmp_path, make, "update")
        stream.live(die=True, before=weights(1))
        died: list[bool] = []

        def once(frame: DataFrame) -> None:
            if not died:
                died.append(True)
                besides(frame)

        stream.live(before=weights(100), besides=once)
    assert f"epoch {DIES_AT} stands, with its state" in caplog.text
    totals = sorted(json.loads(line)["total"] for line in stream.output())
    assert totals == [6, 12, 18, 618, 1218], "18 stands, and what came after it rests on it"


def test_a_version_that_is_gone_in_format_2(
    spark: SparkSession,
    tmp_path: Path,
    undisturbed: Callable[[Any, str], Shown],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where its file is missing, the epoch is computed once more, with a warning."""
    with configured(spark, FORMAT_2):
        stream = Stream(spark, tmp_path / "torn", update, "update")
        stream.live(die=True)
        left = sorted((stream.checkpoint / "state").rglob(f"{DIES_AT + 1}_*"))
        assert left
        left[0].unlink()
        stream.live()
        assert "is computed once more for its state" in caplog.text
        whole = undisturbed(update, "update")
        assert (stream.output(), stream.state()) == (whole.output, whole.state)
