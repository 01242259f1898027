"""Bad records of ``decode`` that Spark has counted before the batch comes to exactum, and does not
count again, or that it counts twice: each of them is told of once all the same.
"""

from __future__ import annotations

import functools
import json
import operator
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import exactum
from exactum import events
from exactum.errors import EpochAborted
from exactum.spark.decoding.bad_records import Bad, BadCount
from tests.kit.decoding.decoded_stream import Job
from tests.kit.errors import check_query_error
from tests.kit.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]


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


def twice(batch: DataFrame) -> DataFrame:
    return batch.union(batch.where("value = '1'"))


def half(batch: DataFrame) -> DataFrame:
    return batch.orderBy("value").limit(batch.count() // 2)


def counted(batch: DataFrame) -> DataFrame:
    """What a view computes is computed of rows that are kept, so what is bad is counted once."""
    return batch.join(batch.groupBy().count(), how="cross").select("value")


def both(frame: DataFrame) -> DataFrame:
    return chosen(frame).union(chosen(frame))


@dataclass(frozen=True)
class Way:
    """In which a batch is computed: ``make`` of the decoded frame, ``before`` and ``around`` by a
    function around exactum's, ``rows`` of the sink. ``out``: what the sink has then.
    """

    make: Callable[[DataFrame], DataFrame] = chosen
    mode: str = "append"
    before: Callable[[DataFrame], object] = lambda batch: None
    around: Callable[[DataFrame], DataFrame] = lambda batch: batch
    rows: Callable[[DataFrame], DataFrame] | None = None
    out: tuple[bytes, ...] = (b"1", b"2")


WAYS = {
    "once": Way(),
    "and again": Way(before=DataFrame.count),
    "by Spark, before a shuffle": Way(shuffled),
    "by a function that persists": Way(before=persisted),
    "by a function, before a shuffle": Way(totals, "update", DataFrame.isEmpty),
    "by a view": Way(rows=half, out=(b"1",)),
    "twice": Way(around=twice, out=(b"1", b"1", b"2")),
    "by two streams and a view": Way(both, rows=counted, out=(b"1", b"1", b"2", b"2")),
}


SEEN_TWICE = ("by a view", "twice", "by two streams and a view")
"""Where what is only counted may be counted twice."""
POLICIES = [("dead_letter", name) for name in WAYS]
POLICIES += [("skip", name) for name in WAYS if name not in SEEN_TWICE]


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        pytest.param(*one, marks=() if one == ("dead_letter", "by a view") else pytest.mark.deep)
        for one in POLICIES
    ],
)
def test_each_is_told_of_once(job: Job, broker: Broker, policy: str, name: str) -> None:
    way, (source, out, dead) = WAYS[name], map(broker.topic, ("in", "out", "dead"))
    broker.produce(source, b"1", b"x", b"2", b"y")
    frame = exactum.decode(broker.frame(job.spark, source), exactum.Json("bigint"), on_error=policy)
    exact = job.exactly_once(broker.sink(out, rows=way.rows), dead_letters=broker.sink(dead))
    write = exact.for_each_batch(checkpoint=job.checkpoint)

    def each(batch: DataFrame, batch_id: int) -> None:
        way.before(batch)
        write(way.around(batch), batch_id)
        batch.unpersist()

    assert job.run(way.make(frame), each, way.mode) is None
    assert sorted(broker.values(out)) == sorted(way.out)
    if policy == "dead_letter":
        assert sorted(broker.values(dead)) == [b"x", b"y"]
    else:
        assert sum(job.seen(events.RowsSkipped).values()) == 2


def dies_once(folder: Path) -> Callable[[], None]:
    """Kills the worker that calls it first."""
    dies = (folder / "dies").touch

    def die() -> None:
        with suppress(FileExistsError):
            dies(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def persisted_twice(batch: DataFrame) -> DataFrame:
    """What is made of the first is kept too: the task that dies is that which keeps it."""
    return batch.persist().selectExpr("dies_once(value) AS value").persist()


def of_rdd(batch: DataFrame) -> DataFrame:
    kept = batch.rdd.persist()
    return batch.sparkSession.createDataFrame(kept, batch.schema)


def written_elsewhere(batch: DataFrame) -> DataFrame:
    """By a job in which a task fails, and is tried again."""
    kept = batch.persist()
    kept.selectExpr("dies_once(value) AS value").write.format("noop").mode("overwrite").save()
    return kept


KEPT: dict[str, Callable[[DataFrame], DataFrame]] = {
    "by exactum, for a function": lambda batch: batch,
    "by the user": DataFrame.persist,
    "below what is written": lambda batch: batch.persist().where("value IS NOT NULL"),
    "twice": persisted_twice,
    "by a checkpoint": lambda batch: batch.localCheckpoint(eager=False),
    "as an RDD": of_rdd,
    "for a job of the user's": written_elsewhere,
}


@pytest.mark.parametrize("kept", KEPT)
def test_a_task_that_dies_behind_rows_that_are_kept(
    job: Job, broker: Broker, tmp_path: Path, kept: str
) -> None:
    """Spark forgets what a task has counted that fails, and the next try reads what that one has
    kept: it decodes nothing. The bad records are in no sink.
    """
    source, out, dead = broker.topic("in", partitions=1), broker.topic("out"), broker.topic("dead")
    broker.produce(source, b"1", b"x", b"2", b"y")
    die = dies_once(tmp_path)

    def once(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            die()
            yield part

    job.spark.udf.register("dies_once", lambda value: die() or value)
    frame = exactum.decode(
        broker.frame(job.spark, source), exactum.Json("bigint"), on_error="dead_letter"
    )
    rows: Any = exactum.Rows(columns=["dies_once(value) AS value"])
    if kept == "by exactum, for a function":
        rows = lambda batch: batch.mapInArrow(once, batch.schema)  # noqa: E731
    exact = job.exactly_once(broker.sink(out, rows=rows), dead_letters=broker.sink(dead))
    write = exact.for_each_batch(checkpoint=job.checkpoint)

    def each(batch: DataFrame, batch_id: int) -> None:
        write(KEPT[kept](batch), batch_id)
        job.spark.catalog.clearCache()

    assert job.run(chosen(frame), each) is None
    assert (tmp_path / "dies").exists()
    assert sorted(broker.values(out)) == [b"1", b"2"]
    assert sorted(broker.values(dead)) == [b"x", b"y"]


@pytest.mark.deep
def test_a_function_that_finds_another_record_bad(job: Job, broker: Broker, tmp_path: Path) -> None:
    """As many the second time, and not the same: the one of the first time is in no sink, and would
    not be among the dead letters.
    """
    source, out, dead = broker.topic("in", partitions=1), broker.topic("out"), broker.topic("dead")
    broker.produce(source, b"x", b"y", b"the end")
    once = tmp_path / "once"

    def flips(value: bytes) -> str:
        if value == b"the end":
            once.touch()
        if value == (b"y" if once.exists() else b"x"):
            raise ValueError("not today")
        return value.decode()

    value = exactum.Function(flips, "string")
    frame = exactum.decode(broker.frame(job.spark, source), value, on_error="dead_letter")
    exact = job.exactly_once(broker.sink(out), dead_letters=broker.sink(dead))
    check_query_error(job.run(chosen(frame), exact), EpochAborted, "1 records", "epoch 0", 1)
    assert broker.read(out) == broker.read(dead) == []
    assert job.run(chosen(frame), exact) is None
    assert sorted(broker.values(out)) == [b"the end", b"x"]
    assert broker.values(dead) == [b"y"]


A, B, C, D = Bad(1, 10, 1), Bad(1, 7, 2), Bad(1, 5, 4), Bad(1, 3, 8)
"""Records: one each, its place, and its mark."""


def several(times: int, *records: Bad) -> Bad:
    marks = functools.reduce(operator.or_, (record.marks for record in records))
    places = sum(record.places for record in records)
    return Bad(times * len(records), times * places, marks)


@pytest.mark.parametrize(
    ("before", "after", "found", "allowed"),
    [
        pytest.param(Bad(), several(1, A, B), several(1, A, B), True, id="all"),
        pytest.param(Bad(), A, several(1, A, B), True, id="a limit in the write job"),
        pytest.param(Bad(), several(1, A, B), A, False, id="fewer"),
        pytest.param(
            Bad(), several(2, A, B), several(1, A, B), True, id="a frame that reads twice"
        ),
        pytest.param(Bad(), several(1, A, B), Bad(), False, id="none"),
        pytest.param(A, several(2, A, B) - B, several(1, A, B), True, id="counted again"),
        pytest.param(several(1, A, B), several(1, A, B), several(1, A, B), True, id="ahead"),
        pytest.param(several(2, A, B), several(2, A, B), several(1, A, B), True, id="ahead, twice"),
        pytest.param(several(1, A, B), several(1, A, B), A, False, id="ahead, and fewer"),
        pytest.param(several(1, A, B), several(1, A, B), Bad(), False, id="ahead, and none"),
        pytest.param(several(3, A), several(3, A), A, True, id="ahead, one three times"),
        pytest.param(Bad(), A, B, False, id="another one"),
        pytest.param(Bad(), Bad(1, 10), Bad(1, 7), False, id="another one with the same mark"),
        pytest.param(Bad(), A, several(1, B, C), False, id="more, and others"),
        pytest.param(several(1, A, B), several(1, A, B), several(1, C, D), False, id="ahead, two"),
    ],
)
def test_how_many_may_be_found(before: Bad, after: Bad, found: Bad, allowed: bool) -> None:
    """A number that divides what was counted does not mean that the same records were found."""
    assert BadCount(before, after).allows(found) is allowed


@pytest.mark.deep
@pytest.mark.parametrize("ends", [(2, 1), (1, 2)], ids=["left ahead", "right ahead"])
def test_two_streams_of_one_frame_that_end_at_different_offsets(
    job: Job, broker: Broker, ends: tuple[int, int]
) -> None:
    """A frame that is joined with itself is read by two streams. On a topic that goes on each asks
    for its own end, and Spark keeps the count of the first one: each letter is written once, when
    that one meets it.
    """
    source, out, dead = broker.topic("in", partitions=1), broker.topic("out"), broker.topic("dead")
    frame = exactum.decode(
        broker.frame(job.spark, source), exactum.Json("bigint"), on_error="dead_letter"
    )
    left, right = chosen(frame).alias("l"), chosen(frame).alias("r")
    joined = left.join(right, f.expr("l.value = r.value")).select("l.value")
    exact = job.exactly_once(broker.sink(out), dead_letters=broker.sink(dead))
    broker.produce(source, b"1")
    assert job.run(joined, exact) is None
    broker.produce(source, b"x", b"2")
    planned = [json.dumps({source: {"0": end}}) for end in ends]
    offsets = job.checkpoint / "offsets"
    known = (offsets / "0").read_text().splitlines()
    (offsets / "1").write_text("\n".join([*known[:-2], *planned]))
    assert job.run(joined, exact) is None
    assert sorted(broker.values(out)) == [b"1", b"2"]
    assert broker.values(dead) == [b"x"]
