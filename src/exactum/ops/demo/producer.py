"""Writes numbered orders at a steady rate."""

from __future__ import annotations

import threading
import time

from confluent_kafka import KafkaError, Message, Producer

from exactum.errors import ExactumError
from exactum.ops.demo.order import order_of

TICK_S = 0.05
FLUSH_TIMEOUT_S = 30.0


def produce(
    bootstrap_servers: str, topic: str, records_per_second: float, stop: threading.Event
) -> int:
    """Write orders 0, 1, 2, ... until ``stop`` is set, and return how many are in the topic: the
    producer is idempotent, and every acknowledgement is waited for.

    Raises:
        ExactumError: one was not acknowledged.
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
    while not stop.wait(TICK_S) and not refused:
        due = int((time.monotonic() - started) * records_per_second)
        while number < due:
            key, value = order_of(number)
            try:
                producer.produce(topic, value, key, on_delivery=delivered)
            except BufferError:
                break  # the broker is behind: the rest is sent with the next tick
            number += 1
        producer.poll(0)
    left = producer.flush(FLUSH_TIMEOUT_S)
    if refused or left:
        raise ExactumError(
            f"{left + len(refused)} of {number} orders were not written: {refused[:1]}"
        )
    return number
