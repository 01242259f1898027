"""A query from Kafka to Kafka: what would read its own output is refused, and what may change the
order within a key is told.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import exactum
from exactum import events
from exactum.errors import RowsRefused, SettingRefused
from exactum.java.program import SMALL_OPTIONS
from exactum.local import LocalKafka
from tests.kit.decoding.decoded_stream import Job
from tests.kit.errors import check_error
from tests.kit.kafka.broker import Broker, producer_to
from tests.kit.waiting import WAIT_MAX_S

RECORDS = 30
KEY_AND_VALUE = ("key", "value")


@pytest.fixture
def job(spark: Any, tmp_path: Path) -> Job:
    return Job(spark, tmp_path / "checkpoint")


def give(broker: Broker, topic: str, count: int = RECORDS, partitions: int = 1) -> None:
    """``count`` records in each partition, of seven keys, whose values are numbers that rise."""
    producer = producer_to(broker.servers)
    for partition in range(partitions):
        for number in range(count):
            key = f"{partition}-{number % 7}"
            producer.produce(topic, str(number).encode(), key.encode(), partition=partition)
    assert producer.flush(WAIT_MAX_S) == 0


def by_name(broker: Broker) -> str:
    """The same brokers by another address."""
    return broker.servers.replace("127.0.0.1", "localhost")


# ---- what a query reads, it does not write -------------------------------------------------------


def pattern(name: str) -> re.Pattern[str]:
    """Matches the topic, and others."""
    return re.compile(f"{re.escape(name)}x?")


LOOPS: dict[str, Any] = {
    "its name": lambda job, broker, name: broker.frame(job.spark, name),
    "another address": lambda job, broker, name: exactum.read_kafka(
        job.spark, name, bootstrap_servers=by_name(broker)
    ),
    "a pattern": lambda job, broker, name: broker.frame(job.spark, pattern(name)),
    "a partition": lambda job, broker, name: broker.frame(job.spark, {name: [0]}),
    "up to a stop": lambda job, broker, name: broker.frame(job.spark, name, stop="latest"),
    "Spark's own reader": lambda job, broker, name: broker.by_spark(job.spark, subscribe=name),
    "a login for the JVM alone": lambda job, broker, name: broker.by_spark(
        job.spark, subscribe=name, **{"kafka.ssl.truststore.location": "/no/such.jks"}
    ),
    "dead letters": lambda job, broker, name: broker.frame(job.spark, [name, name]),
}


def test_a_topic_that_is_read_is_not_written(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """Refused at the start, however the source names it; nothing is written."""
    name, other = broker.topic("in", partitions=1), broker.topic("out", partitions=1)
    give(broker, name)
    itself = broker.sink(name)
    apart = broker.sink(other)
    for loop, frame in LOOPS.items():
        job = Job(spark, tmp_path / loop)
        batch = (
            job.exactly_once(apart, dead_letters=itself)
            if loop == "dead letters"
            else exactum.at_least_once(apart, itself)
        )
        assert job.run(frame(job, broker, name).select(*KEY_AND_VALUE), batch) is not None, loop
        check_error(job.error, SettingRefused, "OWN_OUTPUT", repr(name))
    assert len(broker.read(name)) == RECORDS
    assert broker.read(other) == []


@pytest.mark.variants(1)
@pytest.mark.parametrize("own", [True, False], ids=["its sink's", "its rows'"])
def test_a_topic_that_may_be_written(own: bool, job: Job, broker: Broker) -> None:
    """Where the query says that it means it."""
    name = broker.topic("in", partitions=1)
    give(broker, name)
    sink = broker.sink(name if own else None)
    frame = broker.frame(job.spark, name, failOnLoop=False)
    assert job.run(frame.select(*KEY_AND_VALUE, "topic"), job.exactly_once(sink)) is None
    assert len(broker.read(name)) == 2 * RECORDS


@pytest.mark.deep
def test_a_topic_of_that_name_elsewhere(job: Job, broker: Broker) -> None:
    """Two clusters may have topics of one name."""
    name = broker.topic("in", partitions=1)
    give(broker, name)
    with LocalKafka(jvm_options=SMALL_OPTIONS) as other:
        other.create_topic(name, partitions=1)
        batch = job.exactly_once(exactum.KafkaSink(name, bootstrap_servers=other.bootstrap_servers))
        assert job.run(broker.frame(job.spark, name).select(*KEY_AND_VALUE), batch) is None
        assert len(Broker(other).read(name)) == RECORDS
    assert len(broker.read(name)) == RECORDS


@pytest.mark.parametrize("aside", [True, False], ids=["dead letters", "none"])
def test_rows_that_name_a_topic_that_is_read(aside: bool, job: Job, broker: Broker) -> None:
    """Such a row is put aside, or stops the query; the others are written, or none is."""
    name, other, dead = (broker.topic(one, partitions=1) for one in ("in", "out", "dead"))
    give(broker, name)
    servers = broker.servers
    letters = broker.sink(dead) if aside else None
    batch = job.exactly_once(exactum.KafkaSink(bootstrap_servers=servers), dead_letters=letters)
    back = f"IF(CAST(value AS STRING) < '2', '{name}', '{other}') AS topic"
    frame = exactum.read_kafka(job.spark, pattern(name), bootstrap_servers=by_name(broker))
    error = job.run(frame.selectExpr(*KEY_AND_VALUE, back), batch)
    assert len(broker.read(name)) == RECORDS
    if aside:
        assert error is None
        found = [int(one.value) for one in broker.read(dead)]
        assert found == [n for n in range(RECORDS) if str(n) < "2"]
        assert len(broker.read(other)) == RECORDS - len(found)
        assert job.seen(events.RowsDeadLettered) == {0: len(found)}
    else:
        check_error(job.error, RowsRefused, "ROWS_REFUSED", "failOnLoop")
        assert broker.read(other) == []


# ---- the order within a key ----------------------------------------------------------------------

MANY = 3_000
SPLIT = {"minPartitions": 6}


def in_their_order(batch: DataFrame) -> DataFrame:
    kept = batch.repartition(3, "key").sortWithinPartitions("partition", "offset")
    return kept.select(*KEY_AND_VALUE)


KEPT: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "as it comes": ({}, lambda frame: frame, None),
    "fewer tasks": ({}, lambda frame: frame.coalesce(1), None),
    "by key": ({}, lambda frame: frame.repartition(3, "key"), None),
    "sorted": (SPLIT, lambda frame: frame, in_their_order),
}


@pytest.mark.variants(2)
@pytest.mark.parametrize("case", KEPT)
def test_the_order_within_a_key(case: str, job: Job, broker: Broker) -> None:
    """Records of a key come out as they lie in their partition. What is written is called as what is
    read, with more behind: a name is no pattern, and a pattern is for whole names.
    """
    options, transform, rows = KEPT[case]
    name = broker.topic("in", partitions=2)
    out = f"{name}x.out"
    broker.kafka.create_topic(out, partitions=2)
    give(broker, name, MANY, partitions=2)
    sink = broker.sink(out, rows=rows)
    frame = transform(broker.frame(job.spark, pattern(name), **options))
    assert job.run(frame, job.exactly_once(sink)) is None
    of_key = defaultdict(list)
    for record in broker.read(out):
        of_key[record.key].append(int(record.value))
    assert sum(map(len, of_key.values())) == 2 * MANY
    assert all(one < two for numbers in of_key.values() for one, two in pairwise(numbers))


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({"minPartitions": 6}, True),
        ({"MAXRECORDSPERPARTITION": 10}, True),
        ({}, False),
        ({"minPartitions": 6, "letters": True}, False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else None,
)
def test_a_partition_in_several_tasks(
    options: dict[str, Any],
    warned: bool,
    job: Job,
    broker: Broker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A warning at the start names the option, where Kafka is a sink, and not for dead letters
    alone.
    """
    name, out = broker.topic("in", partitions=1), broker.topic("out", partitions=1)
    give(broker, name)
    options, letters = dict(options), "letters" in options
    options.pop("letters", None)
    sink = broker.sink(out)
    batch = (
        job.exactly_once(exactum.FileSink(tmp_path / "out", format="json"), dead_letters=sink)
        if letters
        else job.exactly_once(sink)
    )
    frame = broker.frame(job.spark, name, **options).selectExpr("CAST(value AS STRING) AS value")
    assert job.run(frame, batch) is None
    found = [
        record.getMessage()
        for record in caplog.records
        if record.levelname == "WARNING" and "several tasks" in record.getMessage()
    ]
    assert len(found) == warned
    assert all(re.search("minPartitions|maxRecordsPerPartition", text) for text in found)
