"""A reader of a topic that knows nothing of exactum."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.kit.waiting import WAIT_MAX_S

TIMEOUT_S = WAIT_MAX_S


def keys_and_values(servers: str, topic: str) -> list[tuple[bytes, bytes]]:
    """Every record that a read_committed reader sees, to the ends of all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "onlooker",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    seen, left = [], set(partitions)
    deadline_s = time.monotonic() + TIMEOUT_S
    while left:
        assert time.monotonic() < deadline_s, f"{topic} was not read to its end"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            seen.append((message.key(), message.value()))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            left.discard(message.partition())
    consumer.close()
    return seen
