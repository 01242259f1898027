"""Records without key and partition: each array into one partition, all partitions in turn, none
without a leader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from exactum.kafka.messages import produce
from exactum.kafka.producer import Producer
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.transactions import frame

pytestmark = pytest.mark.slow

TIMEOUT_MS = 30_000
ARRAYS, ROWS = 60, 5
"""That one of four partitions is never chosen in 60 turns has the probability 1e-7."""
MANY = 150_000
"""It takes librdkafka many milliseconds to ask its partitioner for each of them."""


@contextmanager
def producer(broker: Broker, topic: str, **settings: str) -> Iterator[Producer]:
    made = Producer(
        {"bootstrap.servers": broker.servers, "partitioner": "murmur2_random", **settings}
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
    key: bytes | None = None,
) -> None:
    """Each record says which array it was in, and its place there."""
    for number in range(arrays):
        values = [f"{number} {row}".encode() for row in range(ROWS)]
        produce(producer, frame(values, [key] * ROWS), topic, timeout_ms=TIMEOUT_MS)
    producer.flush(TIMEOUT_MS)


def placed(broker: Broker, topic: str) -> dict[str, list[tuple[int, int]]]:
    """Array -> (partition, place in it) of its records, in the order of each partition."""
    found = defaultdict(list)
    for record in broker.read(topic):
        assert record.value is not None
        number, row = record.value.decode().split()
        found[number].append((record.partition, int(row)))
    return found


def test_an_array_stays_together_and_all_partitions_have_their_turn(broker: Broker) -> None:
    name = broker.topic("turns", partitions=4)
    with producer(broker, name) as sender:
        send(sender, name, ARRAYS)
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
    with producer(broker, name, **settings) as sender:
        send(sender, name, ARRAYS)
    found = placed(broker, name)
    assert {partition for records in found.values() for partition, _ in records} == partitions
    together = all(len({partition for partition, _ in records}) == 1 for records in found.values())
    assert together == (len(partitions) == 1)


def test_a_key_decides_wherever_there_is_one(broker: Broker) -> None:
    name = broker.topic("keyed", partitions=4)
    with producer(broker, name) as sender:
        send(sender, name, ARRAYS, key=b"k")
    assert (
        len({partition for records in placed(broker, name).values() for partition, _ in records})
        == 1
    )


@pytest.mark.parametrize(("age_max_s", "together"), [(60.0, True), (0.0, False)])
def test_what_was_learned_long_ago_does_not_count(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, age_max_s: float, together: bool
) -> None:
    """A spare producer may wait for an hour, and a partition may lose its leader meanwhile."""
    monkeypatch.setattr("exactum.kafka.producer.LEARNED_AGE_MAX_S", age_max_s)
    name = broker.topic("old", partitions=4)
    with producer(broker, name) as sender:
        assert sender.knows(name) == together
        produce(
            sender, frame([f"0 {row}".encode() for row in range(MANY)]), name, timeout_ms=TIMEOUT_MS
        )
        sender.flush(TIMEOUT_MS)
    ends = [broker.end(name, partition) for partition in range(4)]
    assert sum(ends) == MANY and (ends.count(0) == 3) == together
