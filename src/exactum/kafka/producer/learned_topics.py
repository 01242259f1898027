"""What a producer has learned of its topics: their partitions, and whose turn it is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from exactum.kafka.native import librdkafka
from exactum.kafka.producer import sticky
from exactum.kafka.producer.sticky import StickyPartition

LEARNED_AGE_MAX_S = 60.0
"""How long a producer goes by what it learned of a topic; a leader may have been lost since, and
librdkafka knows.
"""


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
        self._linger_ms = sticky.linger_ms(settings)
        self._learned: dict[str, _Learned] = {}

    def take(self, topic: str, metadata: librdkafka.Metadata) -> None:
        """A broker's answer about the topic."""
        self._learned[topic] = self._what_is_told(topic, metadata)

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

    def _what_is_told(self, topic: str, metadata: librdkafka.Metadata) -> _Learned:
        for known in metadata.topics[: metadata.topic_cnt]:
            if known.topic == topic.encode():
                partitions = known.partitions[: known.partition_cnt]
                led = sorted(partition.id for partition in partitions if partition.leader >= 0)
                turns = StickyPartition(led, self._linger_ms) if led and self._linger_ms else None
                return _Learned(time.monotonic(), turns, len(partitions))
        return _Learned(time.monotonic(), None, 0)
