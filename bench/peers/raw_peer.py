"""The floor: consume, produce, offsets and commit in one transaction, with nothing else around confluent-kafka.

Usage: python -m bench.peers.raw_peer NAME=VALUE...  One process for each share of the partitions, which this one
starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.peers.order import Order
from bench.peers.settings import LIBRDKAFKA, PARALLELISM, PARTITIONS, TRANSACTION_TIMEOUT_MS

RECORDS_AT_A_TIME = 5_000
TIMEOUT_S = 60


def main(order: Order, share: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": order.servers,
            "group.id": order.group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )
    producer = Producer(
        {
            **LIBRDKAFKA,
            "bootstrap.servers": order.servers,
            "acks": "all",
            "transactional.id": f"{order.group}-{share}",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    mine = [TopicPartition(order.source, p) for p in range(share, PARTITIONS, PARALLELISM)]
    positions = {p.partition: p.offset for p in consumer.committed(mine, TIMEOUT_S)}
    consumer.assign([TopicPartition(order.source, p, o if o >= 0 else OFFSET_BEGINNING) for p, o in positions.items()])
    while True:
        messages = consumer.consume(1, timeout=1.0)
        if messages:
            transaction(consumer, producer, order, messages, mine)


def transaction(consumer: Consumer, producer: Producer, order: Order, messages: list, mine: list) -> None:  # type: ignore[type-arg]
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
        for share in range(PARALLELISM):
            subprocess.Popen([sys.executable, "-m", "bench.peers.raw_peer", str(share), *sys.argv[1:]])
        # One that is gone is the end of all: the others would go on, and the benchmark wait for its records.
        _, status = os.wait()
        raise SystemExit(f"a share has ended with {os.waitstatus_to_exitcode(status)}")
