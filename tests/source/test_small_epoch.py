"""Epochs of few rows go into fewer tasks where rows cost nothing to compute, and stay as planned
elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

import exactum
from exactum import Delivery, errors
from exactum.local import LocalKafka
from exactum.protocol.model import SourceOffsets
from exactum.spark.live import ranges_of
from exactum.spark.query import Batch
from exactum.spark.write import small_epoch
from tests.kit.errors import check_query_error
from tests.kit.source.columnar_ways import WriterSink
from tests.kit.source.source_stream import Topics, transactions
from tests.kit.spark.files import rows_in
from tests.kit.spark.torn_stream import configured
from tests.kit.waiting import await_true

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def identity(column: Any) -> Any:
    return f.udf(lambda name: name, "string", useArrow=False)(column)


def consumers(spark: Any) -> set[int]:
    """The numbers of Kafka's consumers in this JVM."""
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    # By the interface: the server's own class is not one that others may call.
    methods = jvm.java.lang.Class.forName("javax.management.MBeanServerConnection").getMethods()
    (query,) = (method for method in methods if method.getName() == "queryNames")
    given = gateway.new_array(jvm.java.lang.Object, 2)
    given[0] = jvm.javax.management.ObjectName("kafka.consumer:type=consumer-metrics,client-id=*")
    beans = query.invoke(jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer(), given)
    return {int(b.getKeyProperty("client-id").rpartition("-")[2]) for b in beans.toArray()}


@pytest.fixture(scope="module")
def filled(kafka: LocalKafka) -> Callable[[int], str]:
    """A topic with six records in each partition, of which the tests of a width read the same one."""
    topics = Topics(kafka)

    @cache
    def make(partitions: int) -> str:
        name = topics.topic("small", partitions=partitions)
        topics.give(name, 6, partitions=partitions)
        return name

    return make


# The numbers between them are in test_no_more_tasks_than_run_at_once, which starts no query.
@pytest.mark.parametrize(
    ("partitions", "tasks"),
    [
        (4, [4, 1, 1]),
        (20, [2, 1, 1]),
        *(
            pytest.param(*one, marks=pytest.mark.deep)
            for one in [(1, [1, 1, 1]), (2, [2, 1, 1]), (6, [6, 2, 1])]
        ),
    ],
)
def test_small_epochs(
    stream: Any, filled: Callable[[int], str], partitions: int, tasks: list[int]
) -> None:
    """Every row once; the first epoch as planned where it is of few partitions, the second one in a
    task for four partitions, and no more of them than run at once, two, where there are many; and
    the others in one.
    """
    name = filled(partitions)
    frame = (
        stream.read(name, maxOffsetsPerTrigger=2 * partitions)
        .alias("records")
        .where("records.value is not null")
    )
    assert stream.run(frame) is None
    assert transactions(stream) == tasks
    assert stream.rows() == [
        (name, partition, offset) for partition in range(partitions) for offset in range(6)
    ]


@pytest.mark.deep
@pytest.mark.parametrize("packed", [True, False])
def test_a_wide_topic(stream: Any, topics: Any, packed: bool) -> None:
    """More partitions than Spark keeps consumers for, and some more while the query runs: each is
    read whole and in order by one of few tasks and few consumers, in the first epoch as well.
    """
    name = topics.topic("wide", partitions=70)
    topics.give(name, 6, partitions=70)
    frame = stream.read(name, maxOffsetsPerTrigger=210)
    before = consumers(stream.spark)
    query = stream.start(
        frame if packed else frame.where("value is not null"), processingTime="0 seconds"
    )
    await_true(lambda: len(stream.rows()) == 420, "all is read")
    # Kafka's clients count through: also one that was closed meanwhile would show.
    made = consumers(stream.spark) - before
    assert 1 <= max(made) - min(made) + 1 <= small_epoch.slots_of(stream.spark)
    topics.grow(name, 72)
    topics.give(name, 2, partitions=72)
    await_true(lambda: len(stream.rows()) == 420 + 144, "what was added is read")
    query.stop()
    assert max(transactions(stream)) <= 4
    assert stream.rows() == [
        (name, partition, offset)
        for partition in range(72)
        for offset in range(8 if partition < 70 else 2)
    ]
    for file in stream.out.glob("part-*"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        runs = [
            [row["offset"] for row in each] for _, each in groupby(rows, lambda r: r["partition"])
        ]
        assert len(runs) == len({row["partition"] for row in rows})
        assert all(run == list(range(run[0], run[0] + len(run))) for run in runs)


def costly(rows: Any) -> Any:
    return rows.withColumn("topic", identity("topic"))


def more_rows(rows: Any) -> Any:
    return rows.withColumn("n", f.explode(f.sequence(f.lit(1), f.lit(1))))


def joined(rows: Any) -> Any:
    numbers = rows.sparkSession.range(1)
    return rows.join(numbers, f.col("offset") >= f.col("id")).drop("id")


PLANNED, AT_ONCE = 4, 2
COSTLY: list[tuple[str, Callable[[Any], Any], int]] = [
    ("query", costly, AT_ONCE),
    ("query", lambda frame: frame.where(identity("topic") == f.col("topic")), AT_ONCE),
    ("query", more_rows, PLANNED),
    ("query", lambda frame: frame.mapInArrow(lambda batches: batches, frame.schema), PLANNED),
    ("query", lambda frame: frame.where("offset >= (select min(id) from range(1))"), PLANNED),
    ("rows", costly, AT_ONCE),
    ("rows", joined, PLANNED),
    ("rows", more_rows, PLANNED),
    ("rows", lambda batch: batch.sortWithinPartitions("offset"), PLANNED),
    ("query", lambda frame: exactum.decode(frame, exactum.String(), exactum.String()), AT_ONCE),
    ("around", costly, AT_ONCE),
]
"""Where it is done, ``rows=`` and a function around exactum's among the places, and what: a
function of the user, more rows than there are records, a join or a subquery, another order, records
that are decoded; and the tasks from the third micro-batch on."""


@pytest.mark.variants(3)
@pytest.mark.parametrize(("place", "made", "tasks"), COSTLY)
def test_rows_that_may_cost(
    stream: Any, filled: Callable[[int], str], place: str, made: Callable[[Any], Any], tasks: int
) -> None:
    """What computes rows by more than Spark's own expressions keeps its parallelism: all tasks that
    Spark plans, or where each row is computed from one record, as many as run at once.
    """
    frame = stream.read(filled(4), maxOffsetsPerTrigger=8)
    rows = made if place == "rows" else None
    once = exactum.exactly_once(
        exactum.FileSink(stream.out, format="json", rows=rows), on_event=stream.events.append
    )
    write = once.for_each_batch(checkpoint=stream.checkpoint)
    query = started(
        stream,
        made(frame) if place == "query" else frame,
        (lambda batch, batch_id: write(made(batch), batch_id)) if place == "around" else once,
    )
    assert stream.end(query) is None
    assert transactions(stream) == [4, 4, tasks]
    assert len(stream.rows()) == 24


def test_another_source(stream: Any, filled: Callable[[int], str], tmp_path: Path) -> None:
    """Of a file source nobody knows how many rows it gives."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.json").write_text('{"topic": "file", "partition": 0, "offset": 0}\n')
    files = stream.spark.readStream.schema("topic string, partition int, offset long").json(
        str(tmp_path / "in")
    )
    topic = stream.read(filled(4), maxOffsetsPerTrigger=8).select("topic", "partition", "offset")
    assert stream.run(topic.union(files)) is None
    assert transactions(stream) == [5, 4, 4]


def test_state(stream: Any, filled: Callable[[int], str]) -> None:
    """A query with state has the tasks of its state stores; one task reads what goes into them."""
    frame = stream.read(filled(4), maxOffsetsPerTrigger=8).dropDuplicates(["partition", "offset"])
    query = stream.start(frame, availableNow=True)
    assert stream.end(query) is None
    assert transactions(stream) == [2, 2, 2]
    assert len(stream.rows()) == 24
    tracker = stream.spark.sparkContext.statusTracker()
    jobs = sorted(tracker.getJobIdsForGroup(query.runId))
    stages = [sorted(tracker.getJobInfo(job).stageIds) for job in jobs]
    assert [tracker.getStageInfo(each[0]).numTasks for each in stages] == [4, 4, 1]


def started(stream: Any, frame: Any, batch: Delivery | Callable[[Any, int], None]) -> Any:
    writer = frame.select("topic", "partition", "offset").writeStream.trigger(availableNow=True)
    if isinstance(batch, Delivery):
        return batch.start(writer, checkpoint=stream.checkpoint)
    return writer.option("checkpointLocation", stream.checkpoint).foreachBatch(batch).start()


def refusing_in_batch_one(opened: Any, order: Any, task: Any, folder: Path) -> Any:
    """The rows of the first small epoch."""
    if order.batch_id == 1:
        raise errors.RowsRefused("this row may never be")
    return opened()


@pytest.mark.deep
def test_an_error_of_a_task(stream: Any, filled: Callable[[int], str]) -> None:
    """It arrives as what it is, as in an epoch of any size."""
    once = exactum.exactly_once(
        WriterSink(stream.out, refusing_in_batch_one, format="json"), on_event=stream.events.append
    )
    text = str(stream.end(started(stream, stream.read(filled(4), maxOffsetsPerTrigger=8), once)))
    check_query_error(text, errors.RowsRefused, "USER_CODE", "this row may never be", "partition 0")
    assert transactions(stream) == [4]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("partitions", "at_most", "tasks"), [(4, 8, [4, 2, 2]), (4, 7, [4, 4, 4]), (12, 7, [12, 12, 8])]
)
def test_larger_epochs(
    stream: Any,
    filled: Callable[[int], str],
    partitions: int,
    at_most: int,
    tasks: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of middle size go into the tasks that run at once, here two; larger ones as planned, or
    in four times as many as run at once.
    """
    monkeypatch.setattr(small_epoch, "ROWS_MAX", 7)
    monkeypatch.setattr(small_epoch, "MIDDLE_ROWS_MAX", at_most)
    name = filled(partitions)
    assert stream.run(stream.read(name, maxOffsetsPerTrigger=2 * partitions)) is None
    assert transactions(stream) == tasks
    assert stream.rows() == [(name, p, row) for p in range(partitions) for row in range(6)]


@pytest.mark.variants(1)
@pytest.mark.parametrize(("first", "tasks"), [(12, 4), (6, 2)])
def test_uneven_epochs(
    stream: Any,
    topics: Any,
    first: int,
    tasks: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of two micro-batches has half of every partition: of ``first`` records, and of two in
    each of three others. With more than twice its share in the first one they go as planned.
    """
    monkeypatch.setattr(small_epoch, "ROWS_MAX", 1)
    name = topics.topic("uneven", partitions=4)
    topics.give(name, 2, partitions=4)
    topics.give(name, first - 2, partitions=1)
    half = (first + 6) // 2
    assert stream.run(stream.read(name, maxOffsetsPerTrigger=half)) is None
    assert transactions(stream) == [4, tasks]
    assert len(stream.rows()) == first + 6


def test_switched_off(stream: Any, filled: Callable[[int], str]) -> None:
    with configured(stream.spark, {small_epoch.SETTING: "False"}):
        assert stream.run(stream.read(filled(4), maxOffsetsPerTrigger=8)) is None
    assert transactions(stream) == [4, 4, 4]


LIGHT_VIEWS: dict[str, Callable[[Any], Any]] = {
    "columns": exactum.Rows(columns=["topic", "partition", "offset + 0 AS offset"]),
    "rows": exactum.Rows("offset >= 0"),
    "a function of rows and columns": lambda batch: (
        batch.alias("b").where("b.offset >= 0").withColumn("n", f.upper("topic"))
    ),
}


@pytest.mark.variants(1)
@pytest.mark.parametrize("rows", LIGHT_VIEWS.values(), ids=LIGHT_VIEWS)
def test_light_views_side_by_side(
    stream: Any, filled: Callable[[int], str], tmp_path: Path, rows: Callable[[Any], Any]
) -> None:
    """A view by Spark's own expressions costs no more than the query's own columns: one task for both,
    with a transaction in each target. A function, whose job would be another one, is alone.
    """
    sinks = [exactum.FileSink(str(tmp_path / "other"), format="json", name="other", rows=rows)]
    if isinstance(rows, exactum.Rows):
        sinks.append(exactum.FileSink(stream.out, format="json"))
    once = exactum.exactly_once(*sinks, on_event=stream.events.append)
    assert stream.end(started(stream, stream.read(filled(4), maxOffsetsPerTrigger=8), once)) is None
    assert transactions(stream) == [4 * len(sinks), len(sinks), len(sinks)]
    assert len(rows_in(tmp_path / "other")) == 24
    assert len(stream.rows()) == 24 * (len(sinks) - 1)


@pytest.mark.parametrize(
    ("partitions", "slots", "tasks"),
    [
        (1, 0, 1),
        (16, 0, 4),
        (17, 2, 2),
        (256, 2, 2),
        (64, 10, 10),
        (256, 10, 10),
        (40, 10, 10),
        (36, 10, 9),
        (256, 100, 64),
    ],
)
def test_no_more_tasks_than_run_at_once(
    spark: Any, partitions: int, slots: int, tasks: int
) -> None:
    """But four, which are collected briefly, where there are few partitions and nobody asks. The
    test session is ``local[2,2]``: two tasks run at once.
    """
    assert small_epoch.slots_of(spark) == 2
    assert small_epoch.tasks_worth(partitions, slots) == tasks


BEGAN: list[Any] = [{("a", 0): 1, ("a", 1): 0}]


@pytest.mark.parametrize(
    ("start", "end", "began", "sizes"),
    [
        (('{"a":{"0":1,"1":5}}',), ('{"a":{"0":4,"1":5}}',), [], [3]),
        (('{"a":{"0":1}}', '{"b":{"0":0}}'), ('{"a":{"0":2}}', '{"b":{"0":9}}'), [], [1, 9]),
        (('{"a":{"0":1}}',), ('{"a":{"0":2,"1":3}}',), [], [1, 3]),  # a new partition
        ((), ('{"a":{"0":2}}',), [], None),  # the batch before is not on record
        ((None,), (None,), [], None),
        (("7",), ("9",), [], None),  # another source
        (('{"a":{"0":1}}',), ('{"a":{"0":1}}',), [], []),
        ((), ('{"a":{"0":4,"1":0}}',), BEGAN, [3]),  # the first batch, whose begin is on record
        ((), ('{"a":{"0":4,"1":0}}',), [{}], None),
    ],
)
def test_partition_sizes(start: Any, end: Any, began: Any, sizes: list[int] | None) -> None:
    offsets = SourceOffsets(start, end)
    assert Batch(0, offsets, first=True, ranges=ranges_of(offsets, began)).sizes == sizes
