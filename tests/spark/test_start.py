"""``start``: what it gives back, what it refuses, and in whose hands errors are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

import exactum
from exactum import errors, events
from exactum.checkpoint.layout import RESTORING
from exactum.checkpoint.retirement import BEGUN
from exactum.checkpoint.run_file import living
from exactum.protocol.sink import OpenSink, QueryRun
from exactum.storage.folder import Folder
from tests.kit.errors import raised
from tests.kit.spark.folder_sink import FolderSink, arm
from tests.kit.waiting import await_true

pytestmark = pytest.mark.spark


@pytest.fixture
def numbers(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()


def test_it_has_every_public_name_of_sparks(spark: SparkSession, query: Any) -> None:
    """Who holds a query of Spark's has nothing to learn."""
    from pyspark.sql.streaming.query import StreamingQuery

    public = {name for name in dir(StreamingQuery) if not name.startswith("_")}
    query.give(1)
    running = query.start(query.exactly_once(), processingTime="0 seconds", name="by name")
    assert public <= set(dir(running))
    running.processAllAvailable()
    (own,) = spark.streams.active
    assert (running.id, running.runId, running.name) == (own.id, own.runId, "by name")
    assert running.isActive and running.exception() is None
    assert running.lastProgress["batchId"] == running.recentProgress[-1]["batchId"]
    assert running.status.keys() == own.status.keys()
    assert running.awaitTermination(1) is False
    running.stop()
    running.stop()
    assert not running.isActive
    assert running.awaitTermination() is None
    assert query.values() == [1]


def test_what_cannot_be_is_raised_by_start(query: Any, spark: SparkSession) -> None:
    """As exactum's own error, in the thread of the one who starts; nothing was opened, and nothing is
    left running.
    """
    query.give(1)
    needs = FolderSink(str(query.out), needs=("value",))
    with raised(errors.FrameRefused, "USER_CODE", "'value'"):
        query.start(query.exactly_once(needs))
    assert not spark.streams.active
    assert not query.out.exists()
    assert not living(Folder(query.checkpoint))
    assert query.run(query.exactly_once()) is None
    assert query.values() == [1]


def test_ctrl_c_while_spark_starts_it(query: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first batch does not wait for ever, so that who starts it again in this process can."""
    query.give(1)
    real = DataStreamWriter.start

    def interrupted(self: DataStreamWriter) -> Any:
        spark_query = real(self)
        await_true((query.checkpoint / "offsets" / "0").exists, "the first batch is planned")
        assert spark_query.isActive
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DataStreamWriter, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            query.start(query.exactly_once())
    assert query.run(query.exactly_once()) is None
    assert query.values() == [1]


def test_a_sink_can_ask_what_is_committed(query: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is opened, and so before it makes a target anew that had rows."""
    asked: list[list[int]] = []
    real = FolderSink.open

    def opened(self: FolderSink, run: QueryRun, *more: Any) -> OpenSink:
        asked.append([prepared.rows for prepared in run.committed()])
        return real(self, run, *more)

    monkeypatch.setattr(FolderSink, "open", opened)
    for value in (1, 2):
        query.give(value)
        assert query.run(query.exactly_once()) is None
    assert asked == [[], [1]]


def test_a_query_that_has_nothing_to_read_is_open(query: Any) -> None:
    """Its sinks are tried, and onlookers see that it lives, before there is a row; ``rows=`` is asked
    for its columns, with an empty frame of the batch's.
    """
    asked: list[int] = []

    def rows(batch: DataFrame) -> DataFrame:
        asked.append(batch.count())
        return batch.selectExpr("v", "k")

    sink = FolderSink(str(query.out), rows=rows)
    running = query.start(query.exactly_once(sink), processingTime="0 seconds")
    assert asked == [0]
    (run,) = living(Folder(query.checkpoint))
    assert run.started_ms
    assert query.seen(events.EpochBegan) == []
    running.stop()
    assert not living(Folder(query.checkpoint))
    query.give(1, 2)
    assert query.run(query.exactly_once(sink)) is None
    assert query.values() == [1, 2]


def test_stop_waits_for_the_batch_at_hand(query: Any) -> None:
    """And for Spark's note of it: the next start has nothing to finish."""
    arm(query.out, "write", kind="slow", times=1)
    query.give(1)
    query.give(2)
    running = query.start(query.exactly_once(), processingTime="0 seconds")
    await_true(lambda: query.seen(events.EpochBegan), "a batch is at work")
    running.stop()
    assert not running.isActive and running.exception() is None
    done = len(query.seen(events.EpochCompleted))
    assert done == len(query.seen(events.EpochBegan)) >= 1
    assert (query.checkpoint / "commits" / str(done - 1)).exists()
    assert query.run(query.exactly_once()) is None
    assert query.values() == [1, 2]
    assert query.seen(events.EpochRedelivered) == []


@pytest.mark.parametrize(
    "has", ["foreachBatch", "checkpointLocation", "queryName", "path", "format"]
)
def test_a_writer_that_has_it_already(numbers: DataFrame, tmp_path: Path, has: str) -> None:
    """Spark would drop one of the two without a word."""
    writer = numbers.writeStream
    if has == "foreachBatch":
        writer = writer.foreachBatch(lambda frame, batch_id: None)
    elif has == "queryName":
        writer = writer.queryName("given")
    elif has == "format":
        writer = writer.format("json")
    else:
        writer = writer.option(has, str(tmp_path))
    once = exactum.exactly_once(FolderSink(str(tmp_path)))
    with raised(errors.SettingRefused, "START_ARGUMENT", has):
        once.start(writer, checkpoint=tmp_path)


@pytest.mark.parametrize("place", [None, "", "  ", 7, b"/data", "~/c"], ids=repr)
def test_a_checkpoint_that_is_no_place(numbers: DataFrame, tmp_path: Path, place: Any) -> None:
    """A restart would find nothing; a shell's word for the home folder would be a folder of this name
    below wherever the program runs.
    """
    with raised(errors.SettingRefused, "START_ARGUMENT", f"checkpoint={place!r}"):
        exactum.exactly_once(FolderSink(str(tmp_path))).start(numbers.writeStream, checkpoint=place)


def test_a_decision_log_below_a_shells_home_folder(tmp_path: Path) -> None:
    with raised(errors.SettingRefused, "DECISION_LOG_ARGUMENT", "decision_log", "~"):
        exactum.exactly_once(FolderSink(str(tmp_path)), decision_log="~/log")


def test_no_writer(numbers: DataFrame, tmp_path: Path) -> None:
    """A frame, a reader, or what ``start`` has given back."""
    once = exactum.exactly_once(FolderSink(str(tmp_path)))
    for wrong in (numbers, numbers.sparkSession.readStream, None, "writer"):
        with raised(errors.SettingRefused, "START_ARGUMENT", type(wrong).__name__, "writeStream"):
            once.start(wrong, checkpoint=tmp_path)  # type: ignore[arg-type]


def test_a_query_that_spark_refuses(query: Any) -> None:
    """What Spark says of a start is said plainly where exactum knows it, else as it is."""
    query.checkpoint.write_text("a file")
    with raised(errors.SettingRefused, "CHECKPOINT_UNMADE", str(query.checkpoint)):
        query.start(query.exactly_once())


def test_a_checkpoint_that_is_being_restored(query: Any) -> None:
    """Spark does not write there either."""
    files = Folder(query.checkpoint)
    files.open(RESTORING)
    files.create_if_absent(f"{RESTORING}/{BEGUN}", b"{}")
    before = files.entries()
    with raised(errors.CheckpointRefused, "RESTORE_UNFINISHED", str(query.checkpoint)):
        query.start(query.exactly_once())
    assert files.entries() == before
