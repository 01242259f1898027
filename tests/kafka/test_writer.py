"""Rows become the records that Spark's own sink would have made. (Every odd key, value, header, topic and
partition, and where Java puts a key: tests/abuse/test_kafka_rows.py.)
"""

import errno
import os
import time
from contextlib import nullcontext

import pyarrow as pa
import pytest

from exactum.errors import FrameRefused, SettingRefused, Unavailable
from exactum.kafka.sink import KafkaSink
from exactum.protocol.sink import TaskName, WriteOrder
from tests.kit.errors import raised
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.transactions import frame, opened
from tests.kit.waiting import await_true

pytestmark = pytest.mark.broker


def test_strings_binary_and_sliced_arrays_all_the_same(broker: Broker) -> None:
    """Arrow's string, binary and large types, whole or sliced, give the same bytes."""
    name = broker.topic("types", partitions=1)
    texts = ["a", "", None, "ä" * 1000, "b"]
    whole = pa.record_batch({"value": pa.array(texts)})
    frames = [
        whole,
        pa.record_batch({"value": pa.array(texts, pa.large_string())}),
        pa.record_batch(
            {
                "value": pa.array(
                    [None if t is None else t.encode() for t in texts], pa.large_binary()
                )
            }
        ),
        pa.record_batch({"value": pa.array(["x", *texts, "y"])}).slice(1, 5),
    ]
    with opened(broker.sink(name)) as sink:
        sink.epoch(*frames)
    expected = [None if t is None else t.encode() for t in texts] * len(frames)
    assert broker.values(name) == expected


def test_what_a_failing_task_leaves_is_ended_by_the_driver(broker: Broker) -> None:
    """Whenever it fails, also while its first record is on its way: the driver finds it as soon
    as the task has ended.
    """
    name = broker.topic("failing", partitions=1)
    with opened(broker.sink(name)) as sink:
        order = WriteOrder(
            sink.run, 1, 0, 1
        )  # one write job: no transactional id is used again, which would tidy up
        for number in range(20):
            writer = sink.opened.writers.open(order, TaskName(number, 0, 0))
            writer.write(frame([b"a"] * 1000))
            time.sleep(number / 1000)
            if number == 10:
                await_true(lambda: bool(sink.participant.list_open()), "a transaction is open")
            writer.abort()
        left = sink.participant.list_open()
        assert len(left) > 0
        sink.participant.abort(left)
        assert sink.participant.list_open() == []
    assert broker.read(name) == []


def test_a_batch_of_which_nothing_fits_opens_no_transaction(broker: Broker) -> None:
    """Nothing is prepared, nothing is left open."""
    name = broker.topic("all-large", partitions=1, config={"max.message.bytes": "1000"})
    with opened(broker.sink(name)) as sink:
        assert sink.write(frame([b"x" * 2_000])) == []
        assert sink.participant.list_open() == []


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ({"topic": "never-made"}, ["KAFKA_TOPIC_MISSING", "'never-made'"]),
        (
            {"transaction_timeout_ms": 900_001},
            ["KAFKA_TIMEOUT", "transaction_timeout_ms=900001", "900000 ms"],
        ),
        (
            {"producer": {"message.timeout.ms": "9999999"}},
            ["KAFKA_SETTING", "message.timeout.ms"],
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_at_start(broker: Broker, arguments, facts) -> None:
    """Each with one clear message, before anything is written."""
    settings = {
        "topic": broker.topic("refused"),
        "bootstrap_servers": broker.servers,
        **arguments,
    }
    with raised(SettingRefused, *facts), opened(KafkaSink(**settings)) as sink:
        sink.write(frame([b"a"]))


def test_a_broker_that_is_not_there(broker: Broker) -> None:
    """Said within seconds, with the address."""
    with raised(Unavailable, " 127.0.0.1:1 ", os.strerror(errno.ECONNREFUSED)):
        with opened(KafkaSink("t", bootstrap_servers="127.0.0.1:1")):
            pass


VALUE, KEY = ("value", "string"), ("key", "string")
NOBODYS = [VALUE, KEY, ("KEY", "int"), ("Topic", "string"), ("customer", "string")]


@pytest.mark.parametrize(
    ("topic", "columns", "facts"),
    [
        ("t", [KEY], ["KAFKA_COLUMNS", "'value'", "has: key string"]),
        ("t", [("value", "int")], ["KAFKA_COLUMNS", "'value'", "type int,", "string or binary"]),
        (
            "t",
            [VALUE, ("headers", "map<string,string>")],
            ["KAFKA_COLUMNS", "'headers'", "type map<string,string>,"],
        ),
        ("t", [VALUE, ("partition", "string")], ["KAFKA_COLUMNS", "'partition'", "type string,"]),
        ("t", [VALUE, ("key", "bigint")], ["KAFKA_COLUMNS", "'key'", "type bigint,"]),
        ("t", [VALUE, ("Key", "string")], ["KAFKA_COLUMNS", "'Key'", "'key'"]),
        ("t", [VALUE, ("HEADERS", "binary")], ["KAFKA_COLUMNS", "'HEADERS'", "'headers'"]),
        ("t", NOBODYS, []),
        (None, NOBODYS, ["KAFKA_TOPIC_MISSING_COLUMN", "'topic'", "Topic string"]),
        ("t", [VALUE, ("topic", "int")], []),
        (None, [VALUE], ["KAFKA_TOPIC_MISSING_COLUMN", "'topic'", "value string"]),
    ],
)
def test_frames_that_cannot_be_written_are_refused(topic, columns, facts) -> None:
    """The message lists the columns there are. What is no word of Kafka's is not written, and a
    sink's topic overrides the column, as in Spark.
    """
    with raised(FrameRefused, *facts) if facts else nullcontext():
        KafkaSink(topic, bootstrap_servers="h:1").check_columns(columns)
