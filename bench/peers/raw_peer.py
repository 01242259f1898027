"""The floor: consume, produce, offsets and commit in one transaction, with nothing else around
confluent-kafka.

Usage: python -m bench.peers.raw_peer NAME=VALUE...  One process for each share of the
partitions, which this one starts.
"""

from __future__ import annotations

import subprocess
import sys
import time

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from bench.peers.order import Order
from bench.peers.settings import (
    LIBRDKAFKA,
    LINGER_MS,
    PARALLELISM,
    PARTITIONS,
    TRANSACTION_TIMEOUT_MS,
)

RECORDS_AT_A_TIME = 5_000
TIMEOUT_S = 60
LOOK_EVERY_S = 0.5
ATTEMPTS_MAX = 20
MOVING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


def main(order: Order, share: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": order.servers,
            "group.id": order.group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            # With librdkafka's default of 1,000 a consumer whose queue is full fetches nothing for
            # a second: the floor would be that pause.
            "fetch.queue.backoff.ms": 1,
        }
    )
    producer = Producer(
        {
            **LIBRDKAFKA,
            "linger.ms": LINGER_MS,
            "bootstrap.servers": order.servers,
            "acks": "all",
            "transactional.id": f"{order.group}-{share}",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    mine = [TopicPartition(order.source, p) for p in range(share, PARTITIONS, PARALLELISM)]
    positions = {p.partition: p.offset for p in committed(consumer, mine)}
    consumer.assign(
        [
            TopicPartition(order.source, p, o if o >= 0 else OFFSET_BEGINNING)
            for p, o in positions.items()
        ]
    )
    while True:
        messages = consumer.consume(1, timeout=1.0)
        if messages:
            transaction(consumer, producer, order, messages, mine)


def committed(consumer: Consumer, mine: list[TopicPartition]) -> list[TopicPartition]:
    """The group's positions; a broker that has just begun to know the group is asked again."""
    for _ in range(ATTEMPTS_MAX):
        try:
            return consumer.committed(mine, TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() not in MOVING:
                raise
            time.sleep(LOOK_EVERY_S)
    raise SystemExit("the group's coordinator is not found")


def transaction(
    consumer: Consumer, producer: Producer, order: Order, messages: list, mine: list
) -> None:
    """One transaction, of what comes until the interval is over."""
    end_s = time.monotonic() + order.interval_ms / 1000
    producer.begin_transaction()
    while True:
        for message in messages:
            if message.error():
                raise SystemExit(str(message.error()))
            while True:
                try:
                    producer.produce(order.target, message.value(), message.key())
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            break
        messages = consumer.consume(RECORDS_AT_A_TIME, timeout=min(left_s, 0.02))
    offsets = [p for p in consumer.position(mine) if p.offset >= 0]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)


if __name__ == "__main__":
    if sys.argv[1].isdigit():
        main(Order.parse(sys.argv[2:]), int(sys.argv[1]))
    else:
        shares = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.peers.raw_peer", str(share), *sys.argv[1:]]
            )
            for share in range(PARALLELISM)
        ]
        # One that is gone is the end of all: the others would go on, and the benchmark wait for its
        # records.
        while all(share.poll() is None for share in shares):
            time.sleep(LOOK_EVERY_S)
        for share in shares:
            share.kill()
        raise SystemExit("one of the processes has ended")
