"""Which lane reads a partition, which lanes a query has, and what its tasks are told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from exactum.errors import FrameRefused, Unavailable
from exactum.spark.jvm.kafka_ranges import KafkaRange, Planned
from exactum.spark.run import lane_fit
from exactum.spark.write.failure import TaskFailed, carried_by
from exactum.spark.write.lane_jobs import LaneNumbers, lane_of
from exactum.spark.write.lane_task import (
    LaneTask,
    MapFunction,
    Share,
    as_declared,
    mapped_by,
    share_text,
    shares_of,
)


def test_a_partition_keeps_its_lane() -> None:
    """In every process and micro-batch; and lanes have as much to read, give or take one."""
    assert [lane_of("orders", partition, 4) for partition in range(6)] == [2, 3, 0, 1, 2, 3]
    for topic in ("a", "orders", "ü"):
        counts = [0] * 3
        for partition in range(10):
            counts[lane_of(topic, partition, 3)] += 1
        assert sorted(counts) == [3, 3, 4]


@pytest.mark.parametrize(
    ("of_session", "of_context", "why"),
    [
        ({}, {"spark.python.worker.idleTimeoutSeconds": "60"}, ""),
        ({}, {"spark.python.worker.killOnIdleTimeout": "true"}, ""),
        (
            {},
            {
                "spark.python.worker.killOnIdleTimeout": "true",
                "spark.python.worker.idleTimeoutSeconds": "60",
            },
            "killOnIdleTimeout=true",
        ),
        ({}, {"spark.python.worker.reuse": "false"}, "reuse=false"),
        ({"spark.sql.execution.arrow.useLargeVarTypes": "true"}, {}, "useLargeVarTypes=true"),
        ({}, {"spark.kafka.clusters.one.auth.bootstrap.servers": "k:9092"}, "delegation tokens"),
    ],
)
def test_settings_that_are_against_it(
    of_session: dict[str, str], of_context: dict[str, str], why: str
) -> None:
    """Spark takes a worker for idle, and kills it, that is silent for so long: one that has its one
    array, and reads Kafka by itself. Each start would end at the same micro-batch.
    """
    conf = SimpleNamespace(get=of_context.get, getAll=of_context.items)
    session: Any = SimpleNamespace(
        conf=of_session, sparkContext=SimpleNamespace(getConf=lambda: conf)
    )
    found = lane_fit.why_not(session)
    assert why in found and bool(found) == bool(why)


def test_queries_share_no_lane() -> None:
    numbers = LaneNumbers()
    first, second = numbers.take(2), numbers.take(3)
    assert first == (0, 1)
    assert second == (2, 3, 4)
    numbers.give_back(first)
    numbers.give_back(first)
    assert numbers.take(3) == (0, 1, 5)


def test_what_the_jvm_tells() -> None:
    """A topic's name comes last: blanks are no part of it, but of a column's name."""
    text = "2\nf-12\n1 a name\n4 offset\nread_committed\n120000\n3 10 20 orders.a\n0 0 7 b"
    assert Planned.of(text) == Planned(
        ((1, "a name"), (4, "offset")),
        "f-12",
        "read_committed",
        120_000,
        (KafkaRange("orders.a", 3, 10, 20), KafkaRange("b", 0, 0, 7)),
    )


def test_what_a_task_is_told() -> None:
    shares = [Share("ü", "id", ((0, 1, 5), (2, 0, 9))), Share("b", None, ())]
    assert shares_of(share_text(shares)) == shares


def test_what_a_function_returns() -> None:
    """The types that Spark takes for the declared ones, and no others."""
    import pyarrow as pa

    schema = pa.schema(
        [
            ("text", pa.string()),
            ("at", pa.timestamp("us", "Europe/Berlin")),
            ("of", pa.list_(pa.field("element", pa.struct([("a", pa.binary())])))),
        ]
    )

    def batch(text: pa.DataType, at: pa.DataType, cell: pa.DataType) -> pa.RecordBatch:
        of = pa.list_(pa.field("item", pa.struct([("a", cell)])))
        values = [["x"], [0], [[{"a": b"y"}]]]
        columns = [pa.array(v, t) for v, t in zip(values, (text, at, of), strict=True)]
        return pa.RecordBatch.from_arrays(columns, names=["1", "2", "3"])

    good = batch(pa.large_string(), pa.timestamp("us", "UTC"), pa.large_binary())
    found = as_declared(good, schema)
    assert found.schema == schema
    assert found.column(2).to_pylist() == [[{"a": b"y"}]]
    zone = pa.timestamp("us", "UTC")
    for wrong in (
        batch(pa.binary(), zone, pa.binary()),
        batch(pa.string(), pa.timestamp("us"), pa.binary()),
        batch(pa.string(), pa.timestamp("ms", "UTC"), pa.binary()),
        batch(pa.string(), zone, pa.string()),
        good.select(["1", "2"]),
    ):
        with pytest.raises(FrameRefused, match="schema= says string, timestamp"):
            as_declared(wrong, schema)


def test_a_function_is_new_to_each_task() -> None:
    """What it has kept in its closure is gone, as with Spark's own ``mapInArrow``."""
    import pyarrow as pa
    from pyspark.serializers import CloudPickleSerializer

    seen: list[int] = []

    def counting(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            seen.append(batch.num_rows)
            yield pa.RecordBatch.from_pydict({"batches": pa.array([len(seen)], pa.int64())})

    pickled = bytes(CloudPickleSerializer().dumps((counting, None)))
    function = MapFunction(pickled, pa.schema([("batches", pa.int64())]))
    given = pa.RecordBatch.from_pydict({"value": [b"x"]})
    for _ in range(2):
        found = [batch.to_pydict() for batch in mapped_by(function, iter([given, given]))]
        assert found == [{"batches": [1]}, {"batches": [2]}]


def passing_over(batches: Iterator[Any]) -> Iterator[Any]:
    """Ends where its records end, whatever the reason."""
    try:
        yield from batches
    except Exception:
        return


def at_once(batches: Iterator[Any]) -> Iterator[Any]:
    """The same, of all records at once."""
    return iter(list(passing_over(batches)))


def in_a_thread(batches: Iterator[Any]) -> Iterator[Any]:
    """Reads ahead; its thread dies of the error."""
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.extend(passing_over(batches)))
    reader.start()
    reader.join()
    yield from found


def saying_something_else(batches: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from batches
    except Exception as error:
        raise ValueError("no more") from error


@pytest.mark.parametrize("function", [passing_over, at_once, in_a_thread, saying_something_else])
def test_records_that_do_not_come_are_not_passed_over(
    function: Callable[[Iterator[Any]], Iterator[Any]],
) -> None:
    """With Spark's own ``mapInArrow`` such a task fails in the JVM, whatever the function does."""
    import pyarrow as pa
    from pyspark.serializers import CloudPickleSerializer

    given = pa.RecordBatch.from_pydict({"value": pa.array([b"x"], pa.binary())})

    def failing() -> Iterator[Any]:
        yield given
        raise Unavailable("the broker is gone")

    pickled = bytes(CloudPickleSerializer().dumps((function, None)))
    with pytest.raises(Unavailable, match="the broker is gone"):
        list(mapped_by(MapFunction(pickled, given.schema), failing()))


class SlowTask(LaneTask):
    """Its second batch takes a while."""

    def _batches(self, shares: Any, reads: Any) -> Generator[Any, None, None]:
        import pyarrow as pa

        yield pa.RecordBatch.from_pydict({"value": pa.array([b"x"], pa.binary())})
        time.sleep(1)


def reading_on(batches: Iterator[Any]) -> Iterator[Any]:
    """The first batch, while a thread waits for the next one."""
    yield next(batches)
    threading.Thread(target=lambda: list(batches), daemon=True).start()
    time.sleep(0.2)


def failing_beside(batches: Iterator[Any]) -> Iterator[Any]:
    yield from reading_on(batches)
    raise OSError("the function's own")


@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        (reading_on, TaskFailed, "a thread of its own still reads"),
        (failing_beside, OSError, "the function's own"),
    ],
)
def test_a_thread_that_reads_on(function: Any, kind: type[Exception], said: str) -> None:
    """It has a consumer that the next task is about to use, so the task fails, and says why."""
    import pyarrow as pa
    from pyspark.serializers import CloudPickleSerializer

    pickled = bytes(CloudPickleSerializer().dumps((function, None)))
    called = MapFunction(pickled, pa.schema([("value", pa.binary())]))
    task = SlowTask(lambda batches: iter([*batches][:0]), (), (), 1.0, called)
    with pytest.raises(kind, match=said) as raised:
        list(task(0, iter([share_text([])])))
    if kind is TaskFailed:
        assert isinstance(carried_by(raised.value), FrameRefused)
