"""Writes numbered orders at a steady rate until its standard input ends, then prints how many it
wrote.

Run as a process: python -m exactum.ops.demo.producer BOOTSTRAP_SERVERS TOPIC RECORDS_PER_SECOND. It
is idempotent and waits for every acknowledgement, so that what it prints is what is in the topic.
"""

from __future__ import annotations

import select
import sys
import time

from confluent_kafka import KafkaError, Message, Producer

from exactum.ops.demo.order import order_of

TICK_S = 0.05
FLUSH_TIMEOUT_S = 30.0


def produce(bootstrap_servers: str, topic: str, records_per_second: float) -> int:
    """Write orders 0, 1, 2, ... and return how many are acknowledged.

    Raises:
        RuntimeError: one was not.
    """
    refused: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
        }
    )
    number, started = 0, time.monotonic()
    while not select.select([sys.stdin], [], [], TICK_S)[0] and not refused:
        due = int((time.monotonic() - started) * records_per_second)
        while number < due:
            try:
                key, value = order_of(number)
                producer.produce(topic, value, key, on_delivery=delivered)
            except BufferError:
                break  # the broker is behind: the rest is sent with the next tick
            number += 1
        producer.poll(0)
    left = producer.flush(FLUSH_TIMEOUT_S)
    if refused or left:
        raise RuntimeError(
            f"{left + len(refused)} of {number} orders were not written: {refused[:1]}"
        )
    return number


if __name__ == "__main__":
    print(produce(sys.argv[1], sys.argv[2], float(sys.argv[3])))
