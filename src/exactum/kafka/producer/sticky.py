"""Where records without key and partition go: into one partition for a while, then into another
(KIP-480).

librdkafka does the same, but asks its partitioner for each record, and that is a good part of what
a small record costs it. Chosen here, once for a whole array, it need not ask.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence

from exactum.kafka.native import librdkafka

PARTITIONERS = ("murmur2_random", "consistent_random", "fnv1a_random")
"""Those of librdkafka that stay with a partition where there is no key (rdkafka_msg.c,
rd_kafka_msg_partitioner).
"""
LINGER_MS = 10
"""librdkafka's default of sticky.partitioning.linger.ms."""
LEARNED_AGE_MAX_S = 60.0
"""How long a producer goes by what it learned of a topic; a leader may have been lost since, and
librdkafka knows.
"""


class LearnedTopic:
    """What a broker said of one topic, and whose turn it is. Not for use by several threads at
    once.
    """

    def __init__(self, led: Sequence[int], partitions: int, linger_ms: int) -> None:
        """``led``: those that have a leader, each kept for ``linger_ms``, and for one array."""
        self.partitions = partitions
        self._led = led
        self._linger_s = linger_ms / 1000
        self._at_s = time.monotonic()
        self._chosen, self._until_s = -1, float("-inf")

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self._at_s < LEARNED_AGE_MAX_S

    def turn(self) -> int | None:
        """The partition to send to; None: librdkafka's partitioner is to be asked."""
        if not self._led or not self._linger_s or not self.is_fresh:
            return None
        now_s = time.monotonic()
        if now_s >= self._until_s:
            self._chosen, self._until_s = random.choice(self._led), now_s + self._linger_s
        return self._chosen


def learned(topic: str, metadata: librdkafka.Metadata, linger_ms: int) -> LearnedTopic:
    """From a broker's answer; one that does not know the topic names no partitions."""
    for known in metadata.topics[: metadata.topic_cnt]:
        if known.topic == topic.encode():
            partitions = known.partitions[: known.partition_cnt]
            led = sorted(partition.id for partition in partitions if partition.leader >= 0)
            return LearnedTopic(led, len(partitions), linger_ms)
    return LearnedTopic((), 0, linger_ms)


def linger_ms(settings: Mapping[str, str]) -> int:
    """How long a producer with these settings stays with a partition; 0: it asks its partitioner
    for each record.
    """
    if settings.get("partitioner", PARTITIONERS[1]) not in PARTITIONERS:
        return 0
    return int(settings.get("sticky.partitioning.linger.ms", LINGER_MS))
