"""Where records without key and partition go: into one partition for a while, then into another
(KIP-480).

librdkafka does the same, but asks its partitioner for each record, and that is a good part of what
a small record costs it. Chosen here, once for a whole array, it need not ask.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


class StickyPartition:
    """One topic's. Not for use by several threads at once."""

    def __init__(self, partitions: Sequence[int], linger_ms: int) -> None:
        """``partitions``: those that have a leader, one at least; each is kept for ``linger_ms``,
        and for one array.
        """
        self._partitions = partitions
        self._linger_s = linger_ms / 1000
        self._chosen, self._until_s = partitions[0], float("-inf")

    def current(self) -> int:
        now_s = time.monotonic()
        if now_s >= self._until_s:
            self._chosen, self._until_s = random.choice(self._partitions), now_s + self._linger_s
        return self._chosen


def linger_ms(settings: Mapping[str, str]) -> int:
    """How long a producer with these settings stays with a partition; 0: it asks its partitioner
    for each record.
    """
    if settings.get("partitioner", PARTITIONERS[1]) not in PARTITIONERS:
        return 0
    return int(settings.get("sticky.partitioning.linger.ms", LINGER_MS))


@dataclass(frozen=True)
class _Learned:
    """Of one topic: when, whose turn it is of the partitions with a leader, and how many partitions
    there are.

    Without ``turns`` librdkafka's partitioner is to be asked.
    """

    at_s: float
    turns: StickyPartition | None
    partitions: int


class LearnedTopics:
    """Of one producer, with its settings."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._linger_ms = linger_ms(settings)
        self._learned: dict[str, _Learned] = {}

    def take(self, topic: str, metadata: librdkafka.Metadata) -> None:
        """A broker's answer about the topic."""
        self._learned[topic] = self._from_metadata(topic, metadata)

    def knows(self, topic: str) -> bool:
        """Whether it has learned of the topic, and not too long ago."""
        return (
            topic in self._learned
            and time.monotonic() - self._learned[topic].at_s < LEARNED_AGE_MAX_S
        )

    def turns(self, topic: str) -> StickyPartition | None:
        """Whose turn it is; None: librdkafka's partitioner is to be asked."""
        return self._learned[topic].turns if self.knows(topic) else None

    def partition_count(self, topic: str) -> int:
        """How many partitions it had when it was learned of; 0 where nothing is known."""
        return self._learned[topic].partitions if topic in self._learned else 0

    def _from_metadata(self, topic: str, metadata: librdkafka.Metadata) -> _Learned:
        for known in metadata.topics[: metadata.topic_cnt]:
            if known.topic == topic.encode():
                partitions = known.partitions[: known.partition_cnt]
                led = sorted(partition.id for partition in partitions if partition.leader >= 0)
                turns = StickyPartition(led, self._linger_ms) if led and self._linger_ms else None
                return _Learned(time.monotonic(), turns, len(partitions))
        return _Learned(time.monotonic(), None, 0)
