"""Topics full of records, made once for all rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exactum.kafka.librdkafka import MESSAGE
from exactum.kafka.producer import Producer
from exactum.local import LocalKafka

CHUNK = 50_000


@dataclass(frozen=True)
class Load:
    """``records`` of ``bytes`` value each, without key, spread evenly."""

    records: int
    bytes: int

    @property
    def topic(self) -> str:
        return f"load-{self.records}-{self.bytes}"


def fill(kafka: LocalKafka, load: Load, partitions: int) -> None:
    """Write the load's topic: random printable bytes, record i in partition i modulo
    ``partitions``.
    """
    kafka.create_topic(load.topic, partitions=partitions)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": "20", "acks": "all"}
    )
    rng = np.random.default_rng(1)
    data = rng.integers(33, 126, size=CHUNK * load.bytes, dtype=np.uint8)
    for first in range(0, load.records, CHUNK):
        count = min(CHUNK, load.records - first)
        messages = np.zeros(count, dtype=MESSAGE)
        messages["payload"] = data.ctypes.data + np.arange(count, dtype=np.uint64) * load.bytes
        messages["len"] = load.bytes
        messages["partition"] = np.arange(count) % partitions
        producer.produce_array(load.topic, messages, timeout_ms=120_000)
    producer.flush(120_000)
    producer.destroy()
