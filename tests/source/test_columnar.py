"""``read_kafka`` in columns: the same records, values and types as by Spark's rows, whichever way
they take into Python, and the same checkpoint.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import exactum
from exactum.spark.source import columnar
from tests.kit.kafka.broker import Broker, producer_to
from tests.kit.source.columnar_ways import (
    LAZY,
    MOVING,
    PACKED,
    ROWS,
    WAYS,
    WriterSink,
    give,
    notes_of,
    run,
    schemas,
    written,
)
from tests.kit.spark.torn_stream import configured
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = [pytest.mark.broker, pytest.mark.spark]

# A reader of the topic that the two ways into Python share: by the longer of them, unless at length.
BY_PACKED = pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=() if way == PACKED else pytest.mark.deep) for way in (*WAYS, MOVING)],
    indirect=True,
)


def sizes(stream: Any) -> list[int]:
    return [int(note.read_text().partition("\n")[0]) for note in notes_of(stream.out).iterdir()]


@pytest.mark.deep
def test_one_checkpoint(stream: Any, broker: Broker) -> None:
    """What one way has begun another one goes on with, and no record comes twice."""
    name = broker.topic("checkpoint", partitions=2)
    expected: list[dict[str, Any]] = []
    for number, way in enumerate((ROWS, PACKED, LAZY, ROWS)):
        expected += give(stream.broker, name, 7, 2, first=7 * number)
        with configured(stream.spark, WAYS[way]):
            assert run(stream, stream.read(name)) is None
    found = [(row["partition"], row["offset"], row["value"]) for row in written(stream.out)]
    assert found == sorted((row["partition"], row["offset"], row["value"]) for row in expected)


@pytest.mark.variants(1)
def test_gaps_of_compaction(stream: Any, topics: Any, way: str) -> None:
    """Offsets that a compacted topic has no more are passed over; tombstones are records."""
    quick = {"cleanup.policy": "compact", "segment.ms": 100, "min.cleanable.dirty.ratio": 0.001}
    name = topics.topic("compacted", partitions=1, config={**quick, "max.compaction.lag.ms": 100})
    producer = producer_to(stream.broker.servers)
    for number in range(30):
        producer.produce(name, None if number == 29 else b"%d" % number, key=b"%d" % (number % 3))
        producer.flush(WAIT_MAX_S)
        time.sleep(0.11 if number > 26 else 0)
    rows = stream.spark.read.format("kafka").option("subscribe", name)
    rows = rows.option("kafka.bootstrap.servers", stream.broker.servers).load()
    assert run(stream, stream.read(name)) is None
    found = {row["offset"]: row["value"] for row in written(stream.out)}
    assert found[29] is None
    assert found.keys() >= {row["offset"] for row in rows.collect()}, "read later, compacted more"


@pytest.mark.variants(1)
@pytest.mark.parametrize("tolerant", [False, True])
def test_records_that_are_gone(stream: Any, topics: Any, way: str, tolerant: bool) -> None:
    """Deleted between planning and reading: an error, or passed over where that is accepted."""
    name = topics.topic("gone", partitions=1)
    topics.give(name, 20, partitions=1)

    def rows(batch: Any) -> Any:
        if batch.count():  # Spark has planned the offsets, which is not so at the start
            topics.delete_before(name, 0, 12)
        return batch

    frame = stream.read(name, failOnDataLoss=not tolerant)
    error = run(stream, frame, rows=rows)
    if tolerant:
        assert error is None
        assert [row["offset"] for row in written(stream.out)] == list(range(12, 20))
    else:
        assert "failOnDataLoss" in str(error)
        assert written(stream.out) == []


@pytest.mark.variants(1)
def test_records_that_are_gone_and_were_kept(stream: Any, topics: Any, way: str) -> None:
    """A function that persists the batch, and counts it, gets these rows written."""
    name = topics.topic("kept", partitions=1)
    topics.give(name, 20, partitions=1)
    counted: list[int] = []

    def rows(batch: Any) -> Any:
        batch.persist()
        counted.append(batch.count())
        if counted[-1]:
            topics.delete_before(name, 0, 12)
        return batch

    assert run(stream, stream.read(name), rows=rows) is None
    assert set(counted) == {0, 20}, "at the start there are none"
    assert [row["offset"] for row in written(stream.out)] == list(range(20))


def test_large_records(stream: Any, broker: Broker, packed_jobs: list[Any]) -> None:
    """A batch has two mebibytes, and one record more than fits: memory is bounded by that."""
    name = broker.topic("large", partitions=1, config={"max.message.bytes": 2_000_000})
    values = [os.urandom(1_000_000) for _ in range(24)]
    broker.produce(name, *values, message_max_bytes=2_000_000)
    assert run(stream, stream.read(name)) is None
    assert [row["value"] for row in written(stream.out)] == values
    assert packed_jobs
    assert max(sizes(stream)) < 3_200_000


def test_views(stream: Any, broker: Broker, packed_jobs: list[Any]) -> None:
    """Views that choose columns are packed side by side, each column once."""
    name = broker.topic("views", partitions=2)
    expected = give(stream.broker, name, 25, 2)
    other = stream.out.with_name("other")
    some = exactum.Rows(columns=["value AS v", "partition", "offset"])
    sinks = (
        exactum.FileSink(stream.out, format="parquet"),
        exactum.FileSink(other, format="parquet", name="other", rows=some),
    )
    assert stream.end(start(stream, stream.read(name), *sinks)) is None
    assert [row["value"] for row in written(stream.out)] == [row["value"] for row in expected]
    assert [row["v"] for row in written(other)] == [row["value"] for row in expected]
    assert len(packed_jobs) == 1


def test_a_frame_of_another_batch(stream: Any, broker: Broker, packed_jobs: list[Any]) -> None:
    """Rows that are not the micro-batch's own are written as they are, and not the batch's."""
    name = broker.topic("other", partitions=1)
    give(stream.broker, name, 10, 1)
    elsewhere = stream.spark.createDataFrame([(0, 77)], "partition int, offset long")
    frame = stream.read(name).select("partition", "offset")
    assert run(stream, frame, rows=lambda batch: elsewhere) is None
    assert [row["offset"] for row in written(stream.out)] == [77]
    assert packed_jobs == []


@pytest.mark.variants(1)
def test_a_task_that_fails_once(stream: Any, broker: Broker, way: str) -> None:
    """Its second try reads the same records."""
    name = broker.topic("retried", partitions=2)
    expected = give(stream.broker, name, 40, 2)
    query = start(stream, stream.read(name), WriterSink(stream.out, failing_once))
    assert stream.end(query) is None
    assert len(list(notes_of(stream.out).iterdir())) == 2
    assert [row["value"] for row in written(stream.out)] == [row["value"] for row in expected]


def failing_once(opened: Any, order: Any, task: Any, folder: Path) -> Any:
    """Fails in every task's first try, and leaves a file for it."""
    if task.attempt_number == 0:
        (folder / f"failed-{task.partition_id}").touch()
        raise ConnectionError("once")
    return opened()


def start(stream: Any, frame: Any, *sinks: Any) -> Any:
    notes_of(stream.out).mkdir()
    once = exactum.exactly_once(*sinks)
    return once.start(frame.writeStream.trigger(availableNow=True), checkpoint=stream.checkpoint)


LIVES = 4
"""Each run has other moments."""


@pytest.mark.deep
@pytest.mark.usefixtures("way")
def test_stops_at_any_moment(stream: Any, topics: Any) -> None:
    """While Spark asks for offsets, plans, reads or waits: no stop is a failure, and nothing is
    lost.
    """
    seed = time.time_ns()
    print(f"seed {seed}")
    moments = random.Random(seed)
    name = topics.topic("stopped", partitions=3)
    for life in range(LIVES):
        topics.give(name, 20, partitions=3)
        query = stream.start(stream.read(name, maxOffsetsPerTrigger=9))
        time.sleep(moments.uniform(0.1, 1.5) + (life == 0))
        query.stop()
        assert query.exception() is None
    assert stream.run(stream.read(name)) is None
    assert stream.rows() == [(name, p, offset) for p in range(3) for offset in range(20 * LIVES)]


@BY_PACKED
def test_progress(stream: Any, broker: Broker, way: str) -> None:
    """Spark reports the records that were read, and the source by its own name."""
    name = broker.topic("progress", partitions=2)
    give(stream.broker, name, 15, 2)
    query = stream.start(stream.read(name), availableNow=True)
    assert stream.end(query) is None
    reports = [report for report in query.recentProgress if report["numInputRows"]]
    assert [report["numInputRows"] for report in reports] == [30]
    (source,) = reports[0]["sources"]
    assert source["description"] == f"KafkaV2[Subscribe[{name}]]"
    assert source["metrics"].keys() == {
        "avgOffsetsBehindLatest",
        "maxOffsetsBehindLatest",
        "minOffsetsBehindLatest",
    }


def test_the_way_back(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own source, where it is asked for, or the classes are of another Spark. (Where they
    cannot be loaded: test_bounded.test_without_our_jar.)
    """
    assert columnar.kafka_format(spark) == "exactum.ColumnarKafka"
    with configured(spark, {columnar.SETTING: "False"}):
        assert columnar.kafka_format(spark) == "kafka"
    monkeypatch.setattr(columnar, "SPARK_VERSIONS", ("4.0.",))
    assert columnar.kafka_format(spark) == "kafka"


def test_executors_without_the_classes(monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    """On a cluster the jar has to be one that Spark gives to executors, or the user says that they
    have it.
    """

    def of(**settings: str) -> str:
        context = SimpleNamespace(master="spark://host:7077", _gateway=spark.sparkContext._gateway)
        return columnar.kafka_format(
            SimpleNamespace(sparkContext=context, version=spark.version, conf=settings)  # type: ignore[arg-type]
        )

    monkeypatch.setattr(columnar, "listed_jars", lambda session: ["spark://host:1/jars/x.jar"])
    assert of() == "kafka"
    assert of(**{columnar.SETTING: "true"}) == "exactum.ColumnarKafka"
    monkeypatch.setattr(
        columnar, "listed_jars", lambda session: ["spark://host:1/jars/columnar-kafka.jar"]
    )
    assert of() == "exactum.ColumnarKafka"


def test_large_types(stream: Any, broker: Broker, packed_jobs: list[Any]) -> None:
    """Who wants Arrow's large types of Spark has them."""
    name = broker.topic("large-types", partitions=1)
    give(stream.broker, name, 5, 1)
    with configured(stream.spark, {"spark.sql.execution.arrow.useLargeVarTypes": "true"}):
        assert run(stream, stream.read(name)) is None
    (schema,) = schemas(stream)
    assert "value: large_binary" in schema
    assert packed_jobs == []


# ---- headers (all else of them: test_columnar_rows) ---------------------------------------------


@pytest.mark.parametrize(
    ("header", "of_each", "records", "batches_min"),
    [(("h", b"x" * 100_000), 5, 20, 2), (("", None), 1_000, 200, 5)],
    ids=["large", "many that take no bytes"],
)
def test_headers_count_for_the_size_of_a_batch(
    stream: Any,
    broker: Broker,
    packed_jobs: list[Any],
    header: tuple[str, bytes | None],
    of_each: int,
    records: int,
    batches_min: int,
) -> None:
    """Small records with large headers do not come ten thousand at a time, nor those with many
    headers, which are next to nothing to a broker, and many objects to whoever reads them.
    """
    name = broker.topic("headers", partitions=1)
    producer = producer_to(broker.servers)
    for _ in range(records):
        producer.produce(name, b"x", partition=0, headers=[header] * of_each)
    assert producer.flush(WAIT_MAX_S) == 0
    assert run(stream, stream.read(name, includeHeaders=True)) is None
    assert [len(row["headers"]) for row in written(stream.out)] == [of_each] * records
    assert packed_jobs
    assert len(sizes(stream)) >= batches_min and max(sizes(stream)) < 3_200_000


# ---- tasks that are killed in the middle, or read from a slow broker ----------------------------

RECORDS = 12_000
"""Of a partition, in more than one batch of columns."""


def held(opened: Any, order: Any, task: Any, folder: Path) -> Any:
    return opened() if task.attempt_number else HeldWriter(opened(), folder)


class HeldWriter:
    """Of a task's first try: it stays in the middle until it is killed. Names the task in a file
    when it has written a batch.
    """

    def __init__(self, writer: Any, folder: Path) -> None:
        self._writer = writer
        self._folder = folder
        self.prepare, self.abort = writer.prepare, writer.abort

    def write(self, batch: Any) -> Any:
        from pyspark import TaskContext

        self._writer.write(batch)
        context = TaskContext.get()
        assert context is not None
        (self._folder / str(context.taskAttemptId())).touch()
        time.sleep(120)
        raise TimeoutError("nobody has killed this task")


def held_of(stream: Any) -> list[int]:
    return [int(note.name) for note in notes_of(stream.out).iterdir()]


@pytest.mark.deep
def test_a_task_that_is_killed(
    stream: Any, broker: Broker, packed_jobs: list[Any], way: str
) -> None:
    """Both tasks have written a part of their records: other tries write all of them, once."""
    name = broker.topic("killed", partitions=2)
    for partition in (0, 1):
        numbers = (b"%d" % number for number in range(partition, 2 * RECORDS, 2))
        broker.produce(name, *numbers, partition=partition)
    sink = WriterSink(stream.out, held)
    with configured(stream.spark, {"spark.exactum.coalesceSmallEpochs.enabled": "false"}):
        query = start(stream, stream.read(name), sink)
        await_true(lambda: len(held_of(stream)) == 2, "both tasks have begun")
    scala = stream.spark.sparkContext._jsc.sc()
    for task in held_of(stream):
        assert scala.killTaskAttempt(task, True, "by the test")
    assert stream.end(query) is None
    assert [(row["partition"], row["offset"]) for row in written(stream.out)] == [
        (partition, offset) for partition in range(2) for offset in range(RECORDS)
    ]
    assert bool(packed_jobs) == (way in (PACKED, MOVING))


@BY_PACKED
def test_a_slow_broker(stream: Any, broker: Broker, way: str) -> None:
    """A task that is given a record a second ends with its query, though its batch is not full."""
    name = broker.topic("slow", partitions=1)
    # Each is a batch of its own, of which the broker gives one at a time.
    broker.produce(name, *[b"x"] * 120, batch_num_messages=1)
    slow = {
        "kafka.max.partition.fetch.bytes": 1,
        "kafka.fetch.min.bytes": 1_000_000,
        "kafka.fetch.max.wait.ms": 1_000,
    }
    frame = stream.read(name, **slow)
    query = start(stream, frame, exactum.FileSink(str(stream.out), format="parquet"))
    await_true(lambda: running(stream.spark) == 1, "the task reads")
    query.stop(now=True)
    await_true(lambda: running(stream.spark) == 0, "the task ended", timeout_s=60)


def running(spark: Any) -> int:
    """Tasks of this process."""
    (here,) = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return int(here.numRunningTasks())


@pytest.mark.variants(1)
def test_the_python_that_spark_sql_is_given(
    stream: Any, broker: Broker, tmp_path: Path, way: str, packed_jobs: list[Any]
) -> None:
    """Which Python runs the tasks: the context's own may lack exactum, or have another one."""
    name = broker.topic("python", partitions=2)
    expected = give(stream.broker, name, 5, 2)
    python, seen = tmp_path / "python", tmp_path / "seen"
    python.write_text(f'#!/bin/sh\ntouch {seen}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with configured(stream.spark, {"spark.sql.execution.pyspark.python": str(python)}):
        assert run(stream, stream.read(name)) is None
    assert [row["offset"] for row in written(stream.out)] == [row["offset"] for row in expected]
    assert seen.exists()
    assert bool(packed_jobs) == (way in (PACKED, MOVING))
