"""Records without key and partition: each array into one partition, all partitions in turn, none
without a leader.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from exactum.kafka.messages import produce
from exactum.kafka.producer import LearnedTopic, Producer, linger_ms
from exactum.local import LocalKafka
from exactum.protocol.sink import Guarantee, TaskName, WriteOrder
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.transactions import frame, opened
from tests.kit.servers.kafka_cluster import KafkaNodes
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.slow

TIMEOUT_MS = 30_000
ARRAYS, ROWS = 60, 5
"""That one of four partitions is never chosen in 60 turns has the probability 1e-7."""
MANY = 150_000
"""It takes librdkafka many milliseconds to ask its partitioner for each of them."""
OLD_S = 2.0


@contextmanager
def producer(kafka: LocalKafka | KafkaNodes, topic: str, **settings: str) -> Iterator[Producer]:
    made = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random", **settings}
    )
    try:
        made.learn(topic, TIMEOUT_MS)
        yield made
    finally:
        made.destroy()


def send(
    producer: Producer,
    topic: str,
    arrays: int,
    pause_s: float,
    key: bytes | None = None,
    **more: Any,
) -> None:
    """Each record says which array it was in, and its place there."""
    for number in range(arrays):
        values = [f"{number} {row}".encode() for row in range(ROWS)]
        produce(producer, frame(values, [key] * ROWS, **more), topic, timeout_ms=TIMEOUT_MS)
        time.sleep(pause_s)
    producer.flush(TIMEOUT_MS)


def placed(
    broker: Broker, topic: str, *, committed: bool = True
) -> dict[str, list[tuple[int, int]]]:
    """Array -> (partition, place in it) of its records, in the order of each partition."""
    found = defaultdict(list)
    for record in broker.read(topic, committed=committed):
        assert record.value is not None
        number, row = record.value.decode().split()
        found[number].append((record.partition, int(row)))
    return found


def test_an_array_stays_together_and_all_partitions_have_their_turn(broker: Broker) -> None:
    name = broker.topic("turns", partitions=4)
    with producer(broker.kafka, name, **{"sticky.partitioning.linger.ms": "1"}) as sender:
        send(sender, name, ARRAYS, 0.002)
    arrays = placed(broker, name)
    assert len(arrays) == ARRAYS
    for records in arrays.values():
        assert len({partition for partition, _ in records}) == 1
        assert [row for _, row in records] == list(range(ROWS))
    assert {records[0][0] for records in arrays.values()} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("settings", "partitions"),
    [
        ({"partitioner": "consistent"}, {0}),  # the hash of nothing
        ({"sticky.partitioning.linger.ms": "0"}, {0, 1, 2, 3}),
    ],
    ids=["by the hash alone", "not sticky"],
)
def test_other_settings_are_librdkafkas_business(
    broker: Broker, settings: dict[str, str], partitions: set[int]
) -> None:
    """It is asked for each record: within one array as well."""
    name = broker.topic("others", partitions=4)
    with producer(broker.kafka, name, **settings) as sender:
        send(sender, name, ARRAYS, 0)
    found = placed(broker, name)
    assert {partition for records in found.values() for partition, _ in records} == partitions
    together = all(len({partition for partition, _ in records}) == 1 for records in found.values())
    assert together == (len(partitions) == 1)


def test_a_key_decides_wherever_there_is_one(broker: Broker) -> None:
    name = broker.topic("keyed", partitions=4)
    with producer(broker.kafka, name, **{"sticky.partitioning.linger.ms": "1"}) as sender:
        send(sender, name, ARRAYS, 0.002, key=b"k")
    assert (
        len({partition for records in placed(broker, name).values() for partition, _ in records})
        == 1
    )


@pytest.mark.deep
def test_a_partition_without_a_leader_is_left_out() -> None:
    with KafkaNodes() as kafka:
        admin = kafka.admin()
        nodes = [[1], [2], [3], [1], [2], [3]]
        admin.create_topics([NewTopic("led", replica_assignment=nodes, num_partitions=6)])[
            "led"
        ].result(WAIT_MAX_S)
        kafka.kill(node=2)
        end_s = time.monotonic() + 90
        while True:  # the controller takes its time to notice
            topics = admin.list_topics("led", timeout=WAIT_MAX_S).topics
            led = {
                number
                for number, partition in topics["led"].partitions.items()
                if partition.leader >= 0
            }
            if led == {0, 2, 3, 5}:
                break
            assert time.monotonic() < end_s, f"{led} have a leader"
            time.sleep(0.2)
        with producer(kafka, "led", **{"sticky.partitioning.linger.ms": "1"}) as sender:
            send(sender, "led", ARRAYS, 0.002)  # returns when all are acknowledged


@pytest.mark.parametrize(("age_max_s", "together"), [(60.0, True), (0.0, False)])
def test_what_was_learned_long_ago_does_not_count(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, age_max_s: float, together: bool
) -> None:
    """A spare producer may wait for an hour, and a partition may lose its leader meanwhile."""
    monkeypatch.setattr("exactum.kafka.producer.LEARNED_AGE_MAX_S", age_max_s)
    name = broker.topic("old", partitions=4)
    with producer(broker.kafka, name, **{"sticky.partitioning.linger.ms": "1"}) as sender:
        assert sender.knows(name) == together
        produce(
            sender, frame([f"0 {row}".encode() for row in range(MANY)]), name, timeout_ms=TIMEOUT_MS
        )
        sender.flush(TIMEOUT_MS)
    partitions = {partition for partition, _ in placed(broker, name)["0"]}
    assert (len(partitions) == 1) == together


@pytest.mark.deep
@pytest.mark.parametrize("guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE])
def test_a_task_asks_again_when_that_is_long_ago(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, guarantee: Guarantee
) -> None:
    monkeypatch.setattr("exactum.kafka.producer.LEARNED_AGE_MAX_S", OLD_S)
    name = broker.topic("asks", partitions=4)
    settings = {"sticky.partitioning.linger.ms": 1}
    with opened(broker.sink(name, producer=settings), "q", guarantee) as sink:
        writer = sink.opened.writers.open(WriteOrder(sink.run, 1, 0, 1), TaskName(0, 0, 0))
        for number in range(2):
            writer.write(frame([f"{number} {row}".encode() for row in range(MANY)]))
            time.sleep(OLD_S)
        writer.prepare()
    arrays = placed(broker, name, committed=False)
    assert [len(arrays[str(number)]) for number in range(2)] == [MANY] * 2
    assert all(len({partition for partition, _ in records}) == 1 for records in arrays.values())


def test_one_is_kept_for_a_while() -> None:
    kept = LearnedTopic([3, 5], 8, linger_ms=60_000)
    assert len({kept.turn() for _ in range(100)}) == 1
    turned = LearnedTopic([3, 5], 8, linger_ms=1)
    turns = set[int | None]()
    for _ in range(100):
        turns.add(turned.turn())
        time.sleep(0.001)
    assert turns == {3, 5}
    assert LearnedTopic([], 8, linger_ms=1).turn() is None


def test_who_is_sticky() -> None:
    assert linger_ms({}) == 10
    assert linger_ms({"partitioner": "random"}) == linger_ms({"partitioner": "murmur2"}) == 0
    assert linger_ms({"partitioner": "fnv1a_random", "sticky.partitioning.linger.ms": "7"}) == 7
