"""One partition of a topic, as librdkafka's consumer hands it out."""

from __future__ import annotations

import numpy as np

from exactum.errors import Unavailable
from exactum.kafka.consumer.consumed import Consumed
from exactum.kafka.native import librdkafka

GATHER_MS = 5
"""How long it is waited for as many messages as were asked for."""


class PartitionFeed:
    """A ``Feed``. ``topic`` is an rd_kafka_topic_t of a consumer; both live longer than this."""

    def __init__(self, topic: int, partition: int, where: str) -> None:
        self._c = librdkafka.library()
        self._topic = topic
        self._partition = partition
        self._where = where
        self._started = False
        self._pointers = np.zeros(0, dtype=np.uint64)

    def start(self, offset: int) -> None:
        """
        Raises:
            Unavailable: librdkafka cannot go there.
        """
        self.stop()
        if self._c.rd_kafka_consume_start(self._topic, self._partition, offset) != 0:
            code = self._c.rd_kafka_last_error()
            reason = self._c.rd_kafka_err2str(code).decode()
            raise Unavailable(f"{self._where} cannot be read from offset {offset}: {reason}.")
        self._started = True

    def take(self, count_max: int) -> Consumed | None:
        """What is there, after ``GATHER_MS`` at most."""
        if len(self._pointers) < count_max:
            self._pointers = np.zeros(count_max, dtype=np.uint64)
        count = self._c.rd_kafka_consume_batch(
            self._topic, self._partition, GATHER_MS, self._pointers.ctypes.data, count_max
        )
        return Consumed(self._pointers[:count].copy()) if count > 0 else None

    def stop(self) -> None:
        """Read no further; what has come is dropped. Idempotent."""
        if self._started:
            self._started = False
            self._c.rd_kafka_consume_stop(self._topic, self._partition)
