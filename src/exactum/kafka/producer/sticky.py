"""Where records without key and partition go: into one partition for a while, then into another
(KIP-480).

librdkafka does the same, but asks its partitioner for each record, and that is a good part of what
a small record costs it. Chosen here, once for a whole array, it need not ask.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence

PARTITIONERS = ("murmur2_random", "consistent_random", "fnv1a_random")
"""Those of librdkafka that stay with a partition where there is no key (rdkafka_msg.c,
rd_kafka_msg_partitioner).
"""
LINGER_MS = 10
"""librdkafka's default of sticky.partitioning.linger.ms."""


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
