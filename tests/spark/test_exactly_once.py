"""exactly_once on a real Spark, into a small durable sink."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import exactum
from exactum import errors, events
from exactum.spark.write.write_job import CANCELLED
from tests.kit.errors import check_query_error, raised
from tests.kit.spark.folder_sink import FolderSink, arm, await_struck, rows
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = pytest.mark.spark


def test_every_batch_stands_once(query: Any) -> None:
    """Each file is one epoch; all rows stand, nothing is left open, and each decision is on disk
    by its batch id. A batch without rows is decided too, and prepares nothing.
    """
    for n in range(3):
        query.give(n)
    assert query.run(query.exactly_once(), transform=lambda frame: frame.where("v != 1")) is None
    assert query.values() == [0, 2]
    assert query.values("staged") == []
    completed = query.seen(events.EpochCompleted)
    assert [(e.batch_id, e.transactions, e.rows) for e in completed] == [
        (0, 1, 1),
        (1, 0, 0),
        (2, 1, 1),
    ]
    assert {"write", "verify", "decide", "commit", "sweep"} <= set(completed[0].phase_ms)
    records = list((query.checkpoint / "exactum" / "decisions").rglob("*"))
    assert all(any(str(n) in record.name for record in records) for n in range(3))


def test_processing_time_and_one_object_for_several_starts(query: Any) -> None:
    """A query stopped and started again with the same object and the same writer, which keeps what the
    first start has given it, goes on; each run is a new incarnation.
    """
    once, writer = query.exactly_once(), query.writer(processingTime="0 seconds")
    query.give(1)
    running = once.start(writer, checkpoint=query.checkpoint)
    running.processAllAvailable()
    query.give(2)
    running.processAllAvailable()
    running.stop()
    query.give(3)
    again = once.start(writer, checkpoint=query.checkpoint)
    again.processAllAvailable()
    assert (query.out / "closed").read_text() == "x", (
        "the first run's connections are closed, the second's not yet"
    )
    again.stop()
    assert query.values() == [1, 2, 3]
    assert len({e.incarnation for e in query.seen(events.EpochCompleted)}) == 2


@pytest.mark.parametrize(
    ("step", "kind"), [("prepare", "error"), ("write", "exit")], ids=["fails", "is killed"]
)
def test_a_task_that_fails_once(query: Any, step: str, kind: str) -> None:
    """It aborts its own rows; those of a Python worker that dies in the middle are left, and are
    swept. Spark tries it again, and the epoch stands once.
    """
    arm(query.out, step, kind=kind)
    query.give(1, 2)
    assert query.run(query.exactly_once()) is None
    assert query.values() == [1, 2]
    assert query.values("staged") == []
    assert kind == "exit" or (query.out / "aborted").exists()


def test_a_task_that_fails_for_good_stops_the_query(query: Any) -> None:
    """The query stops with the task's own error, which who waits for it is given, with what may be
    done about it; nothing of the batch is visible, nothing is left open.
    """
    arm(query.out, "prepare", times=2)
    query.give(1, 2)
    once = query.exactly_once()
    running = query.start(once)
    facts = "ValueError: injected at prepare", "partition 0", "attempt 1", "folder_sink.py:"
    with raised(errors.CodeFailed, "CODE_FAILED", *facts) as ended:
        running.awaitTermination()
    assert "Py4JJavaError" not in str(ended.value)
    assert running.exception().disposition is errors.Disposition.HALT
    assert not running.isActive
    assert query.values() == query.values("staged") == []
    assert len(query.seen(events.EpochAbandoned)) == 1
    assert query.run(once) is None
    assert query.values() == [1, 2]


def test_a_sink_that_does_not_open_stops_the_query(query: Any, tmp_path: Path) -> None:
    """Where one sink cannot be opened the others are closed again and nothing is written."""
    arm(tmp_path / "other", "open", kind="unavailable")
    query.give(1)
    text = query.run(query.exactly_once(query.sink, FolderSink(str(tmp_path / "other"))))
    check_query_error(text, errors.Unavailable, "the folder did not answer at open")
    assert query.error.disposition is errors.Disposition.RETRY
    assert (query.out / "closed").exists()
    assert query.values() == []


def test_columns_with_odd_names(query: Any) -> None:
    """Dots, blanks and quotes in a column's name are nothing special."""
    query.give(7)
    renamed = query.run(
        query.exactly_once(),
        transform=lambda frame: frame.selectExpr("v AS `a.b`", "v", "k AS `c ``d`"),
    )
    assert renamed is None
    assert rows(query.out) == [{"a.b": 7, "v": 7, "c `d": "o"}]


def test_a_query_stopped_in_the_middle_of_an_epoch(query: Any) -> None:
    """query.stop() while a task writes ends the run; the next one brings the batch in, once."""
    arm(query.out, "write", kind="held", times=4)
    query.give(1, 2)
    running = query.start(query.exactly_once())
    await_true(lambda: [*(query.out / "staged").glob("*")], "rows are staged")
    running.stop(now=True)
    (query.out / "released").touch()
    assert running.exception() is None, "Spark takes it for the stop that it is"
    assert query.run(query.exactly_once()) is None
    assert query.values() == [1, 2]
    assert query.values("staged") == []


def test_a_job_that_somebody_cancels(query: Any) -> None:
    """It is told as that, and the next run brings the batch in, once."""
    arm(query.out, "write", kind="held", times=4)
    query.give(1, 2)
    running = query.start(query.exactly_once())
    await_true(lambda: [*(query.out / "staged").glob("*")], "rows are staged")
    query.spark.sparkContext.cancelAllJobs()
    with raised(errors.EpochAborted, CANCELLED):
        running.awaitTermination()
    (query.out / "released").touch()
    assert query.run(query.exactly_once()) is None
    assert query.values() == [1, 2]


def test_a_row_that_speaks_of_a_stop(query: Any) -> None:
    """An error that a function of the query raises of it is told, and is no stop."""
    query.give(1)

    @f.udf(useArrow=False)
    def parsed(value: int) -> str:
        raise RuntimeError(f"no number:\nCaused by: java.lang.InterruptedException {value}")

    text = query.run(query.exactly_once(), transform=lambda rows: rows.select(parsed("v")))
    check_query_error(text, errors.EpochAborted, "RuntimeError: no number")


@pytest.mark.variants(1)
@pytest.mark.parametrize("last", [0, 1], ids=["the first", "a later one"])
def test_a_query_stopped_while_spark_begins_a_batch(query: Any, last: int) -> None:
    """Spark gives the batch to a query that is being stopped. No run begins for it, and Spark
    takes it for the stop that it is.
    """
    delivery = query.exactly_once()
    once = delivery.for_each_batch(checkpoint=query.checkpoint)
    started, stopping = threading.Event(), threading.Event()

    def stop() -> None:
        stopping.set()
        running.stop()

    thread = threading.Thread(target=stop, daemon=True)

    def batch(frame: DataFrame, batch_id: int) -> None:
        if batch_id == last:
            started.wait(WAIT_MAX_S)
            thread.start()
            await_true(lambda: not running.isActive, "Spark stops it")
        once(frame, batch_id)

    for number in range(last + 1):
        query.give(number)
    running = query.start(batch, processingTime="0 seconds")
    started.set()
    await_true(stopping.is_set, "the batch begins")
    thread.join(WAIT_MAX_S)
    assert not thread.is_alive()
    assert running.exception() is None
    assert len(query.seen(events.RunStarted)) == last
    assert query.run(delivery) is None
    assert query.values() == [*range(last + 1)]


@pytest.mark.deep
def test_a_query_stopped_in_the_middle_of_a_commit(query: Any) -> None:
    """query.stop() while a sink commits, however long that takes: its connections stay open, and
    the epoch stands.
    """
    once = query.exactly_once()
    arm(query.out, "commit", kind="held")
    query.give(1, 2)
    running = query.start(once, processingTime="0 seconds")
    await_struck(query.out)
    stopping = threading.Thread(target=running.stop, daemon=True)
    stopping.start()
    time.sleep(40)  # somebody notices the end of the query, and may not act on it
    stopped, closed = not stopping.is_alive(), (query.out / "closed").exists()
    (query.out / "released").touch()
    stopping.join(WAIT_MAX_S)
    assert (stopped, closed) == (False, False)
    assert running.exception() is None
    assert query.values() == [1, 2]
    await_true((query.out / "closed").exists, "its connections are closed")


def test_a_listener_that_fails_does_not_touch_the_epoch(
    query: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in on_event is logged and goes no further."""

    def fails(event: events.Event) -> None:
        raise RuntimeError("a listener's defect")

    query.give(1)
    assert query.run(exactum.exactly_once(query.sink, on_event=fails)) is None
    assert query.values() == [1]
    assert "on_event failed" in caplog.text


def test_what_a_cancelled_task_still_writes_is_swept(query: Any) -> None:
    """A task whose job has failed goes on in its worker with its input cut off, and prepares
    when the query is gone.
    """
    query.give(1, 2)
    sink = dataclasses.replace(query.sink, refuses_v=1, late_v=2)
    text = query.run(
        query.exactly_once(sink), transform=lambda frame: frame.repartitionByRange(2, "v")
    )
    check_query_error(text, errors.RowsRefused, "ROWS_REFUSED", "v=1 may not be")
    await_true((query.out / "late").exists, "the late task wrote")
    await_true(lambda: bool(query.seen(events.LeftoversSwept)), "somebody swept")
    assert query.values("staged") == query.values() == []
