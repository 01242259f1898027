"""What every contender is given alike."""

from __future__ import annotations

import os
from collections.abc import Mapping

PARTITIONS = int(os.environ.get("PARTITIONS", "4"))
"""Of every topic; of the environment, to see what more of them cost each."""
PARALLELISM = 2
LINGER_MS = 5
BATCH_BYTES = 262_144
"""exactum's default. A Java producer sends a batch of each partition in one request, librdkafka
one batch.
"""
BUFFER_BYTES = 64 * 2**20
"""What a producer may hold unsent: small buffers would make the Java ones wait for room where
librdkafka does not.
"""
JAVA_HEAP_MB = 1024
"""Spark's default for its driver; the other JVMs get the same."""
KEYS = 10_000
"""Of the running aggregate; each is hit equally often."""
TABLE = "bench_rows"
TRANSACTION_TIMEOUT_MS = 600_000

LIBRDKAFKA: Mapping[str, object] = {
    "batch.size": BATCH_BYTES,
    "compression.type": "none",
    "queue.buffering.max.kbytes": BUFFER_BYTES // 1024,
}
"""Without linger.ms: exactum has a default of its own, until the batch is full or the task ends."""


def described() -> str:
    return (
        f"{PARTITIONS} partitions, parallelism {PARALLELISM}; producers: acks=all, linger "
        f"{LINGER_MS} ms (exactum: its default), batches of {BATCH_BYTES // 1024} KiB, buffers of "
        f"{BUFFER_BYTES // 2**20} MiB, no compression; readers: read_committed; JVM heaps of "
        f"{JAVA_HEAP_MB} MiB; aggregate over {KEYS:,} keys"
    )
