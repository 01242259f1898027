"""Tasks that read Kafka in columns, and are killed in the middle, or read from a slow broker."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import exactum
from tests.kit.kafka.broker import Broker
from tests.kit.source.columnar_ways import MOVING, PACKED, WriterSink, notes_of, written
from tests.kit.spark.torn_stream import configured
from tests.kit.waiting import WAIT_MAX_S, await_true
from tests.source.test_columnar import BY_PACKED

pytestmark = [pytest.mark.broker, pytest.mark.spark]

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


def start(stream: Any, frame: Any, sink: Any) -> Any:
    notes_of(stream.out).mkdir()
    once = exactum.exactly_once(sink)
    return once.start(frame.writeStream.trigger(availableNow=True), checkpoint=stream.checkpoint)


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
    producer = Producer({"bootstrap.servers": stream.broker.servers})
    for _ in range(120):  # each a batch of its own, of which the broker gives one at a time
        producer.produce(name, b"x")
        producer.flush(WAIT_MAX_S)
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
