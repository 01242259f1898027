"""Read_committed readers of an output topic: one that runs all along, and a fresh one at the
end.
"""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from exactum.errors import ExactumError
from exactum.ops.demo.tally import Tally

BATCH_RECORDS = 2_000
POLL_S = 0.1
FRESH_TIMEOUT_S = 60.0


def follow(
    bootstrap_servers: str, topic: str, partitions: int, tally: Tally, stop: threading.Event
) -> None:
    """Count everything in the topic into ``tally``, from the beginning until ``stop`` is set."""
    consumer = _consumer(bootstrap_servers, topic, partitions)
    try:
        while not stop.is_set():
            _consume(consumer, tally)
    finally:
        consumer.close()


def read_all(bootstrap_servers: str, topic: str, partitions: int) -> Tally:
    """Count what a new reader finds in the topic, from the beginning to the last stable offset.

    Raises:
        ExactumError: the end was not reached in ``FRESH_TIMEOUT_S``.
    """
    tally, ended = Tally(), set[int]()
    consumer = _consumer(bootstrap_servers, topic, partitions)
    deadline = time.monotonic() + FRESH_TIMEOUT_S
    try:
        while len(ended) < partitions:
            ended |= _consume(consumer, tally)
            if time.monotonic() > deadline:
                raise ExactumError(
                    f"the topic {topic} could not be read to its end within {FRESH_TIMEOUT_S:.0f} "
                    "s."
                )
    finally:
        consumer.close()
    return tally


def _consumer(bootstrap_servers: str, topic: str, partitions: int) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "exactum-demo",  # asked for, and unused: nothing is committed
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    return consumer


def _consume(consumer: Consumer, tally: Tally) -> set[int]:
    """Count what is there; return the partitions whose end was met."""
    ended = set()
    for message in consumer.consume(BATCH_RECORDS, POLL_S):
        error = message.error()
        if error is None:
            tally.add(message.partition() or 0, message.key(), message.value())
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition() or 0)
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)
    return ended
