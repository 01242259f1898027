"""``arrow_kafka``: what the workers read by themselves is what Spark would read, or the query fails
with a reason; where they cannot, Spark reads, and a warning says so.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import functions as f

import exactum
from chaos.proxy import Proxy
from chaos.servers import LedKafka
from exactum.errors import SettingRefused
from exactum.events import EpochBegan, EpochCompleted
from exactum.spark.write.lane_jobs import lane_numbers
from tests.kit.source.columnar_ways import NotingSink, give_large, notes_of, run, written
from tests.kit.source.source_stream import COLUMNS_IN_WORKERS, Stream
from tests.kit.spark.torn_stream import configured
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = [pytest.mark.broker, pytest.mark.spark]

WARNING = "Spark reads Kafka for this query"
LIVES_ON = {"columns": COLUMNS_IN_WORKERS}


def give(kafka: Any, topic: str, count: int, partitions: int, first: int = 0) -> list[dict]:
    """Records with and without keys and values, and empty ones; as a query shows them."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    given = []
    for number in range(first, first + count):
        for partition in range(partitions):
            key = (None, b"", b"k%d" % number, b"\xff\xfe")[number % 4]
            value = (b"v%d" % number, None, b"", "ü€".encode(), b"\x00" * 70)[number % 5]
            producer.produce(topic, key=key, value=value, partition=partition)
            given.append(
                {
                    "key": key,
                    "value": value,
                    "topic": topic,
                    "partition": partition,
                    "offset": number,
                }
            )
    assert producer.flush(WAIT_MAX_S) == 0
    return in_order(given)


def in_order(rows: list[dict]) -> list[dict]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if WARNING in r.getMessage()]


def schemas(stream: Any) -> set[str]:
    return {note.read_text().partition("\n")[2] for note in notes_of(stream.out).iterdir()}


@pytest.mark.in_turn
def test_every_record(
    make_stream: Any,
    topic: Callable[..., str],
    lane_jobs: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of several topics, in small micro-batches, of the types that Spark hands on; and Spark's
    progress counts them."""
    names = [topic("arrow", partitions=3), topic("arrow", partitions=1)]
    stream = make_stream()
    expected = in_order(
        [*give(stream.kafka, names[0], 41, 3), *give(stream.kafka, names[1], 60, 1)]
    )
    notes_of(stream.out).mkdir()
    once = exactum.exactly_once(NotingSink(str(stream.out), format="parquet"))
    frame = stream.arrow(names, **LIVES_ON, maxOffsetsPerTrigger=80)
    writer = frame.writeStream.option("checkpointLocation", str(stream.checkpoint))
    query = writer.trigger(availableNow=True).foreachBatch(once).start()
    assert stream.end(query) is None
    assert written(stream.out) == expected
    assert len(lane_jobs) == 3
    assert max(lane_jobs) == 2
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == len(expected)
    assert warned(caplog) == []
    other = make_stream()
    assert run(other, other.read(names).select(*COLUMNS_IN_WORKERS)) is None
    assert schemas(stream) == schemas(other)


SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, twice bigint"


def doubled(batches: Iterator[Any]) -> Iterator[Any]:
    """One column more, of another Arrow type than Spark's."""
    for batch in batches:
        twice = pa.array([2 * offset for offset in batch.column("offset").to_pylist()], pa.int64())
        columns = [*batch.columns, twice]
        columns[2] = columns[2].cast(pa.large_string())
        yield pa.RecordBatch.from_arrays(columns, names=[str(place) for place in range(6)])


@pytest.mark.in_turn
def test_a_function(
    make_stream: Any, topic: Callable[..., str], lane_jobs: list[int], caplog: Any
) -> None:
    """What it returns reaches the sinks as by Spark's ``mapInArrow``: places count, not names."""
    name = topic("function", partitions=2)
    found: list[Any] = []
    expected: list[dict] = []
    for settings in ({}, {"spark.exactum.columnarKafka.enabled": "false"}):
        stream = make_stream()
        expected = expected or give(stream.kafka, name, 20, 2)
        with configured(stream.spark, settings):
            frame = stream.arrow(name, **LIVES_ON, function=doubled, schema=SCHEMA)
            assert run(stream, frame) is None
        found.append((schemas(stream), written(stream.out)))
    assert found[0][1] == [{**row, "twice": 2 * row["offset"]} for row in expected]
    assert found[0] == found[1]
    assert lane_jobs == [2]
    assert len(warned(caplog)) == 1


def shortened(batches: Iterator[Any]) -> Iterator[Any]:
    """Ten records of each task, whatever comes."""
    for batch in batches:
        yield batch.slice(0, 10).select(["partition", "offset"])
        return


@pytest.mark.in_turn
def test_a_function_that_stops(
    stream: Any, topic: Callable[..., str], lane_jobs: list[int]
) -> None:
    """It leaves a range half read: the next one begins where it shall, not where the reader
    stands."""
    name = topic("stops", partitions=1)
    give(stream.kafka, name, 30_000, 1)
    frame = stream.arrow(
        name,
        columns=["partition", "offset"],
        function=shortened,
        schema="partition int, offset bigint",
        maxOffsetsPerTrigger=10_000,
    )
    assert run(stream, frame) is None
    assert [row["offset"] for row in written(stream.out)] == [
        offset for first in (0, 10_000, 20_000) for offset in range(first, first + 10)
    ]
    assert len(lane_jobs) == 3


def torn(batches: Iterator[Any]) -> Iterator[Any]:
    """Fails in its second batch, until a file is there."""
    for number, batch in enumerate(batches):
        if number and not os.path.exists(os.environ["EXACTUM_TORN"]):
            with open(os.environ["EXACTUM_TORN"], "w"):
                raise OSError("torn")
        yield batch


@pytest.mark.in_turn
def test_a_task_that_is_tried_again(
    stream: Any,
    topic: Callable[..., str],
    lane_jobs: list[int],
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader stands in the middle of the range, and reads it once more from its beginning."""
    name = topic("again", partitions=1)
    give(stream.kafka, name, 25_000, 1)
    path = str(tmp_path / "torn")
    monkeypatch.setitem(stream.spark.sparkContext.environment, "EXACTUM_TORN", path)
    schema = "key binary, value binary, topic string, partition int, offset bigint"
    assert run(stream, stream.arrow(name, **LIVES_ON, function=torn, schema=schema)) is None
    assert [row["offset"] for row in written(stream.out)] == list(range(25_000))
    assert os.path.exists(path)
    assert lane_jobs == [1]


def other_type(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch.select(["offset"])


def lanes_are_free() -> bool:
    taken = lane_numbers.take(1)
    lane_numbers.give_back(taken)
    return taken == (0,)


@pytest.mark.in_turn
def test_a_function_that_breaks_its_schema(stream: Any, topic: Callable[..., str]) -> None:
    name = topic("breaks", partitions=1)
    give(stream.kafka, name, 3, 1)
    frame = stream.arrow(name, **LIVES_ON, function=other_type, schema="offset int")
    error = run(stream, frame)
    assert "has returned columns of int64; its schema= says int32" in str(error)
    assert written(stream.out) == []
    await_true(lanes_are_free, "a query that failed has given its lanes back")


@pytest.mark.in_turn
def test_transactions_of_one_record(
    stream: Any, topic: Callable[..., str], lane_jobs: list[int]
) -> None:
    """Gaps everywhere, and ranges that end in the middle of what came at once; some are of nothing
    but gaps."""
    name = topic("singles", partitions=2)
    producer = Producer(
        {"bootstrap.servers": stream.kafka.bootstrap_servers, "transactional.id": name}
    )
    producer.init_transactions(WAIT_MAX_S)
    expected = []
    for number in range(60):
        producer.begin_transaction()
        producer.produce(name, b"%d" % number, partition=number % 2)
        assert producer.flush(WAIT_MAX_S) == 0
        kept = number % 3 == 0 or number > 50
        (producer.commit_transaction if kept else producer.abort_transaction)(30)
        if kept:
            expected.append((number % 2, number // 2 * 2, b"%d" % number))
    assert run(stream, stream.arrow(name, **LIVES_ON, maxOffsetsPerTrigger=6)) is None
    found = [(row["partition"], row["offset"], row["value"]) for row in written(stream.out)]
    assert found == sorted(expected)
    assert len(lane_jobs) == 20


def test_a_topic_made_anew_while_read_ahead(
    stream: Any, topics: Any, topic: Callable[..., str], lane_jobs: list[int]
) -> None:
    """Offsets are the same in both topics: the readers know it by the topic's id."""
    name = topic("anew", partitions=1)
    topics.give(name, 100, partitions=1)

    def on_event(event: Any) -> None:
        if isinstance(event, EpochCompleted) and event.batch_id == 1:
            topics.made_anew(name, partitions=1)
            topics.give(name, 100, partitions=1)

    frame = stream.arrow(name, **LIVES_ON, maxOffsetsPerTrigger=20)
    once = exactum.exactly_once(
        exactum.FileSink(str(stream.out), format="parquet"), on_event=on_event
    )
    writer = frame.writeStream.option("checkpointLocation", str(stream.checkpoint))
    error = stream.end(writer.trigger(availableNow=True).foreachBatch(once).start())
    assert f"'{name}' was deleted and made anew" in str(error)
    assert [row["offset"] for row in written(stream.out)] == list(range(40))
    assert lane_jobs


def waiting(batches: Iterator[Any]) -> Iterator[Any]:
    """Ends as ``shortened`` does, when a file is there."""
    for batch in shortened(batches):
        Path(os.environ["EXACTUM_TAKEN"]).touch()
        deadline_s = time.monotonic() + 30
        while not os.path.exists(os.environ["EXACTUM_ANEW"]) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        yield batch


@pytest.mark.in_turn
def test_a_topic_made_anew_below_a_function_that_stops(
    stream: Any,
    topics: Any,
    topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It leaves its range half read, and the topic is looked at all the same."""
    name = topic("anew-early", partitions=1)
    topics.give(name, 100, partitions=1)
    taken, anew = tmp_path / "taken", tmp_path / "anew"
    for variable, path in {"EXACTUM_TAKEN": taken, "EXACTUM_ANEW": anew}.items():
        monkeypatch.setitem(stream.spark.sparkContext.environment, variable, str(path))
    frame = stream.arrow(
        name,
        columns=["partition", "offset"],
        function=waiting,
        schema="partition int, offset bigint",
    )
    once = exactum.exactly_once(exactum.FileSink(str(stream.out), format="parquet"))
    writer = frame.writeStream.option("checkpointLocation", str(stream.checkpoint))
    query = writer.trigger(availableNow=True).foreachBatch(once).start()
    await_true(taken.exists, "the function has its first records")
    topics.made_anew(name, partitions=1)
    anew.touch()
    assert f"'{name}' was deleted and made anew" in str(stream.end(query))
    assert written(stream.out) == []


def passing_over(batches: Iterator[Any]) -> Iterator[Any]:
    """Ends where its records end, whatever the reason."""
    try:
        yield from batches
    except Exception:
        return


@pytest.mark.in_turn
@pytest.mark.parametrize("function", [None, passing_over])
def test_records_that_are_deleted_below(
    stream: Any, topics: Any, topic: Callable[..., str], lane_jobs: list[int], function: Any
) -> None:
    """Deleted when Spark has planned them, and no reader has come so far; also below a function
    that passes over every error.
    """
    name = topic("deleted", partitions=1)
    topics.give(name, 20, partitions=1)

    def on_event(event: Any) -> None:
        if isinstance(event, EpochBegan):
            topics.delete_before(name, 0, 12)

    once = exactum.exactly_once(
        exactum.FileSink(str(stream.out), format="parquet"), on_event=on_event
    )
    schema = "key binary, value binary, topic string, partition int, offset bigint"
    called = {} if function is None else {"function": function, "schema": schema}
    frame = stream.arrow(name, **LIVES_ON, **called)
    writer = frame.writeStream.option("checkpointLocation", str(stream.checkpoint))
    error = stream.end(writer.trigger(availableNow=True).foreachBatch(once).start())
    assert f"'{name}'" in str(error)
    assert "from offset 0 of partition 0" in str(error)
    assert "failOnDataLoss" in str(error)
    assert written(stream.out) == []
    assert lane_jobs


def deleting(batches: Iterator[Any]) -> Iterator[Any]:
    """Deletes the partition's records when all have come."""
    name = ""
    for batch in batches:
        name = batch.column("topic")[0].as_py()
        yield batch
    admin = AdminClient({"bootstrap.servers": os.environ["EXACTUM_BROKERS"]})
    for future in admin.delete_records([TopicPartition(name, 0, 9)]).values():
        future.result(WAIT_MAX_S)


@pytest.mark.in_turn
def test_a_gap_that_is_not_proven(
    stream: Any,
    topic: Callable[..., str],
    lane_jobs: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An offset is missing, and the log begins after it now: it may have been a record."""
    name = topic("unproven", partitions=1)
    producer = Producer(
        {"bootstrap.servers": stream.kafka.bootstrap_servers, "transactional.id": name}
    )
    producer.init_transactions(WAIT_MAX_S)
    for _ in range(10):
        producer.begin_transaction()
        producer.produce(name, b"x", partition=0)
        producer.commit_transaction(WAIT_MAX_S)
    monkeypatch.setitem(
        stream.spark.sparkContext.environment, "EXACTUM_BROKERS", stream.kafka.bootstrap_servers
    )
    schema = "key binary, value binary, topic string, partition int, offset bigint"
    frame = stream.arrow(name, **LIVES_ON, function=deleting, schema=schema)
    error = run(stream, frame)
    assert f"no record came for offset 1 of {name}-0, which begins at 9 now" in str(error)
    assert written(stream.out) == []
    assert lane_jobs


@pytest.mark.in_turn
def test_large_records(stream: Any, topic: Callable[..., str], lane_jobs: list[int]) -> None:
    name = topic("large", partitions=1, config={"max.message.bytes": 2_000_000})
    values = give_large(stream.kafka, name)
    assert run(stream, stream.arrow(name, **LIVES_ON)) is None
    assert [row["value"] for row in written(stream.out)] == values
    assert lane_jobs


@pytest.mark.in_turn
def test_one_checkpoint(stream: Any, topic: Callable[..., str], lane_jobs: list[int]) -> None:
    """What one of them has begun the other goes on with, and no record comes twice."""
    name = topic("both", partitions=2)
    expected: list[dict] = []
    for number in range(4):
        expected += give(stream.kafka, name, 7, 2, first=7 * number)
        frame = stream.read(name) if number % 2 else stream.arrow(name, **LIVES_ON)
        assert run(stream, frame.select(*COLUMNS_IN_WORKERS)) is None
    assert written(stream.out) == in_order(expected)
    assert len(lane_jobs) == 2


@pytest.mark.in_turn
def test_two_queries(
    make_stream: Any, topic: Callable[..., str], lane_jobs: list[int], caplog: Any
) -> None:
    """At once, in one session, over one topic: each has lanes of its own."""
    name = topic("two", partitions=2)
    streams = [make_stream(), make_stream()]
    expected = give(streams[0].kafka, name, 400, 2)
    queries = []
    for stream in streams:
        frame = stream.arrow(name, **LIVES_ON, maxOffsetsPerTrigger=100)
        writer = frame.writeStream.option("checkpointLocation", str(stream.checkpoint))
        once = exactum.exactly_once(exactum.FileSink(str(stream.out), format="parquet"))
        queries.append(writer.trigger(availableNow=True).foreachBatch(once).start())
    for stream, query in zip(streams, queries, strict=True):
        assert stream.end(query) is None
        assert written(stream.out) == expected
    assert len(lane_jobs) == 16
    assert warned(caplog) == []


FALLBACKS: dict[str, tuple[dict[str, Any], dict[str, str], Callable[[Any], Any], str]] = {
    "a filter": ({}, {}, lambda frame: frame.where("offset >= 0"), "does more than"),
    "another column": (
        {"columns": [*COLUMNS_IN_WORKERS, "timestamp"]},
        {},
        lambda frame: frame,
        "other columns than key, value",
    ),
    "a later mapInArrow": (
        {"function": shortened, "schema": "partition int, offset bigint"},
        {},
        lambda frame: frame.mapInArrow(lambda batches: batches, frame.schema),
        "does more than",
    ),
    "losses": ({"failOnDataLoss": False}, {}, lambda frame: frame, "failOnDataLoss=false"),
    "headers": ({"includeHeaders": True}, {}, lambda frame: frame, "headers"),
    "a setting": (
        {"kafka.exclude.internal.topics": True},
        {},
        lambda frame: frame,
        "no counterpart of kafka.exclude.internal.topics",
    ),
    "settings that librdkafka refuses together": (
        {"kafka.fetch.max.bytes": 100_000},
        {},
        lambda frame: frame,
        "librdkafka does not take the consumer settings together",
    ),
    "Spark's own source": (
        {},
        {"spark.exactum.columnarKafka.enabled": "false"},
        lambda frame: frame,
        "columnarKafka.enabled=false",
    ),
    "a stop": ({"stop": "latest"}, {}, lambda frame: frame, "stop= is given"),
}


@pytest.mark.in_turn
@pytest.mark.parametrize("case", FALLBACKS.values(), ids=FALLBACKS)
def test_what_spark_reads(
    stream: Any,
    topic: Callable[..., str],
    lane_jobs: list[int],
    caplog: pytest.LogCaptureFixture,
    case: tuple[dict[str, Any], dict[str, str], Callable[[Any], Any], str],
) -> None:
    """The rows are the same; one warning says why."""
    arguments, settings, transform, why = case
    name = topic("usual", partitions=2)
    expected = give(stream.kafka, name, 8, 2)
    with configured(stream.spark, settings):
        frame = transform(stream.arrow(name, **{**LIVES_ON, **arguments}, maxOffsetsPerTrigger=10))
        assert run(stream, frame) is None
    rows = [(row["partition"], row["offset"]) for row in written(stream.out)]
    assert rows == [(row["partition"], row["offset"]) for row in expected]
    (warning,) = warned(caplog)
    assert re.search(why, warning)
    assert lane_jobs == []


@pytest.mark.in_turn
def test_state_and_other_sinks(
    stream: Any, topic: Callable[..., str], lane_jobs: list[int], caplog: Any
) -> None:
    """The frame is a plan of Spark's: whatever is done with it has Spark's results."""
    name = topic("state", partitions=2)
    give(stream.kafka, name, 8, 2)
    frame = stream.arrow(name, **LIVES_ON).groupBy("partition").agg(f.count("*").alias("count"))
    query = frame.writeStream.format("memory").queryName("counts").outputMode("complete")
    assert stream.end(query.trigger(availableNow=True).start()) is None
    assert {tuple(row) for row in stream.spark.table("counts").collect()} == {(0, 8), (1, 8)}
    stream.spark.catalog.dropTempView("counts")
    once = exactum.at_most_once(exactum.FileSink(str(stream.out), format="parquet"))
    writer = stream.arrow(name, **LIVES_ON).writeStream.foreachBatch(once)
    writer = writer.option("checkpointLocation", str(stream.checkpoint))
    assert stream.end(writer.trigger(availableNow=True).start()) is None
    assert len(written(stream.out)) == 16
    assert len(warned(caplog)) == 1
    assert lane_jobs == []


def test_at_least_once(stream: Any, topic: Callable[..., str], lane_jobs: list[int]) -> None:
    name = topic("least", partitions=2)
    expected = give(stream.kafka, name, 6, 2)
    once = exactum.at_least_once(exactum.FileSink(str(stream.out), format="parquet"))
    writer = stream.arrow(name, **LIVES_ON).writeStream.foreachBatch(once)
    writer = writer.option("checkpointLocation", str(stream.checkpoint))
    assert stream.end(writer.trigger(availableNow=True).start()) is None
    assert written(stream.out) == expected
    assert lane_jobs == [2]


@pytest.mark.in_turn
def test_a_query_that_is_stopped(stream: Any, topics: Any, topic: Callable[..., str]) -> None:
    """With a function that goes on for long: it ends soon, and the next start writes all."""
    name = topic("stopped", partitions=1)
    expected = give(stream.kafka, name, 5, 1)

    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(300)
            yield batch

    schema = "key binary, value binary, topic string, partition int, offset bigint"
    once = exactum.exactly_once(exactum.FileSink(str(stream.out), format="parquet"))
    frame = stream.arrow(name, **LIVES_ON, function=slow, schema=schema)
    writer = frame.writeStream.option("checkpointLocation", str(stream.checkpoint))
    query = writer.foreachBatch(once).start()
    tracker = stream.spark.sparkContext._jsc.sc().statusTracker()
    await_true(lambda: tracker.getExecutorInfos()[0].numRunningTasks() == 1, "it runs")
    query.stop()
    await_true(lambda: tracker.getExecutorInfos()[0].numRunningTasks() == 0, "it ended", 120)
    assert run(stream, stream.arrow(name, **LIVES_ON)) is None
    assert written(stream.out) == expected


def taken_then_waiting(batches: Iterator[Any]) -> Iterator[Any]:
    """Has read all, and ends when a file is there."""
    yield from batches
    Path(os.environ["EXACTUM_TAKEN"]).touch()
    deadline_s = time.monotonic() + 30
    while not os.path.exists(os.environ["EXACTUM_HARMED"]) and time.monotonic() < deadline_s:
        time.sleep(0.05)


@pytest.mark.in_turn
def test_a_connection_that_ends_while_the_driver_asks(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers are asked again, and the query goes on."""
    taken, harmed = tmp_path / "taken", tmp_path / "harmed"
    for variable, path in {"EXACTUM_TAKEN": taken, "EXACTUM_HARMED": harmed}.items():
        monkeypatch.setitem(spark.sparkContext.environment, variable, str(path))
    with Proxy() as proxy, LedKafka(proxy.port, {}) as kafka:
        proxy.target_port = kafka.clients_port
        monkeypatch.setattr(
            LedKafka, "bootstrap_servers", property(lambda _: f"127.0.0.1:{proxy.port}")
        )
        kafka.create_topic("led", partitions=1)
        stream = Stream(spark, kafka, tmp_path)
        expected = give(kafka, "led", 20, 1)
        schema = "key binary, value binary, topic string, partition int, offset bigint"
        frame = stream.arrow("led", **LIVES_ON, function=taken_then_waiting, schema=schema)
        once = exactum.exactly_once(exactum.FileSink(str(stream.out), format="parquet"))
        writer = frame.writeStream.option("checkpointLocation", str(stream.checkpoint))
        query = writer.trigger(availableNow=True).foreachBatch(once).start()
        await_true(taken.exists, "the function has its records")
        proxy.lose_replies()
        before = proxy.harm
        harmed.touch()
        await_true(lambda: proxy.harm > before, "replies are lost")
        time.sleep(1.5)  # the driver asks meanwhile
        proxy.heal()
        assert stream.end(query) is None
        assert written(stream.out) == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"function": doubled}, "belong together"),
        ({"schema": "key binary"}, "belong together"),
        ({"function": 1, "schema": "key binary"}, "cannot be called"),
        ({"columns": "key"}, "must be a list"),
        ({"columns": []}, "must be a list"),
        ({"columns": ["key", "no"]}, "no column 'no'"),
        ({"columns": ["key", "key"]}, "twice"),
    ],
)
def test_arguments(
    stream: Any, topic: Callable[..., str], arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingRefused, match=said):
        stream.arrow(topic("arguments", partitions=1), **arguments)
