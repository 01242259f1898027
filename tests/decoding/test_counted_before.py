"""Bad records of ``decode`` that Spark has counted before the batch comes to exactum, and does not
count again, or that it counts twice: each of them is told of once all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import exactum
from exactum import KafkaSink, events
from exactum.local import LocalKafka
from exactum.spark.decoding.bad_count import BadCount
from tests.decoding.test_policies import kafka_frame, produce
from tests.kit.decoding.decoded_stream import Job, read

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path / "check point")


def chosen(frame: DataFrame) -> DataFrame:
    return frame.select(f.col("value").cast("string").alias("value"))


def shuffled(frame: DataFrame) -> DataFrame:
    """No state: from 4.1 on Spark plans it adaptively, and runs its map stage before it calls
    foreachBatch.
    """
    return chosen(frame).repartition(2, "value")


def totals(frame: DataFrame) -> DataFrame:
    return frame.groupBy(f.col("value").cast("string").alias("value")).count().select("value")


def persisted(frame: DataFrame) -> None:
    frame.persist()
    frame.count()


@pytest.mark.parametrize("policy", ["dead_letter", pytest.param("skip", marks=pytest.mark.in_turn)])
@pytest.mark.parametrize(
    ("make", "mode", "before"),
    [
        pytest.param(chosen, "append", None, id="never"),
        pytest.param(chosen, "append", DataFrame.count, id="and again"),
        pytest.param(shuffled, "append", None, id="by Spark, before a shuffle"),
        pytest.param(chosen, "append", persisted, id="by a function that persists"),
        pytest.param(totals, "update", DataFrame.isEmpty, id="by a function, before a shuffle"),
    ],
)
def test_each_is_told_of_once(
    job: Job,
    kafka: LocalKafka,
    topic: Callable[..., str],
    make: Any,
    mode: str,
    before: Any,
    policy: str,
) -> None:
    source, out, dead = topic("in", partitions=2), topic("out"), topic("dead")
    produce(kafka, source, b"1", b"x", b"2", b"y")
    frame = exactum.decode(kafka_frame(job, kafka, source), exactum.Json("bigint"), on_error=policy)
    exact = job.exactly_once(
        KafkaSink(out, bootstrap_servers=kafka.bootstrap_servers),
        dead_letters=KafkaSink(dead, bootstrap_servers=kafka.bootstrap_servers),
    )

    def each(batch: DataFrame, batch_id: int) -> None:
        if before is not None:
            before(batch)
        exact(batch, batch_id)
        batch.unpersist()

    assert job.run(make(frame), each, mode) is None
    assert sorted(one.value() for one in read(kafka, out)) == [b"1", b"2"]
    if policy == "dead_letter":
        assert sorted(one.value() for one in read(kafka, dead)) == [b"x", b"y"]
    else:
        assert sum(job.seen(events.RowsSkipped).values()) == 2


def test_views_that_compute_the_batch_wedge(
    job: Job, kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    """view_jobs.py run(): the frame is persisted, given back, and persisted again: what is bad is counted twice.
    Each start ends with EpochAborted."""
    source, out, few, dead = topic("in", partitions=2), topic("out"), topic("few"), topic("dead")
    produce(kafka, source, b"1", b"x", b"2", b"y")
    frame = exactum.decode(
        kafka_frame(job, kafka, source), exactum.Json("bigint"), on_error="dead_letter"
    )

    def half(batch: DataFrame) -> DataFrame:
        return batch.orderBy("value").limit(batch.count() // 2)

    def sink(name: str, **more: Any) -> KafkaSink:
        return KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers, **more)

    exact = job.exactly_once(sink(out), sink(few, rows=half), dead_letters=sink(dead))
    assert job.run(chosen(frame), exact) is None
    assert len(read(kafka, few)) == 1
    assert sorted(one.value() for one in read(kafka, dead)) == [b"x", b"y"]


def test_a_frame_that_reads_the_batch_twice_wedges(
    job: Job, kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    """view_jobs.py:81 persists only where a sink has rows=: what the function itself makes of the batch is not."""
    source, out, dead = topic("in", partitions=2), topic("out"), topic("dead")
    produce(kafka, source, b"1", b"x", b"2", b"y")
    frame = exactum.decode(
        kafka_frame(job, kafka, source), exactum.Json("bigint"), on_error="dead_letter"
    )
    servers = kafka.bootstrap_servers
    exact = job.exactly_once(
        KafkaSink(out, bootstrap_servers=servers),
        dead_letters=KafkaSink(dead, bootstrap_servers=servers),
    )

    def each(batch: DataFrame, batch_id: int) -> None:
        exact(batch.union(batch.where("value = '1'")), batch_id)

    assert job.run(chosen(frame), each) is None
    assert sorted(one.value() for one in read(kafka, dead)) == [b"x", b"y"]


@pytest.mark.parametrize(
    ("before", "after", "found", "reads", "allowed"),
    [
        pytest.param(0, 4, 4, 1, True, id="all"),
        pytest.param(0, 4, 5, 1, True, id="a limit in the write job"),
        pytest.param(0, 4, 2, 1, False, id="fewer"),
        pytest.param(0, 4, 2, 2, True, id="a frame that reads twice"),
        pytest.param(0, 4, 0, 2, False, id="none"),
        pytest.param(0, 4, 3, 2, False, id="fewer, and not by reading twice"),
        pytest.param(3, 7, 4, 1, True, id="counted again"),
        pytest.param(4, 4, 4, 1, True, id="ahead"),
        pytest.param(8, 8, 4, 1, True, id="ahead, two times"),
        pytest.param(4, 4, 3, 1, False, id="ahead, and fewer"),
        pytest.param(4, 4, 0, 1, False, id="ahead, and none"),
    ],
)
def test_how_many_may_be_found(
    before: int, after: int, found: int, reads: int, allowed: bool
) -> None:
    assert BadCount(before, after).allows(found, reads) is allowed
