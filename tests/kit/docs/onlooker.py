"""A reader of a topic that knows nothing of exactum."""

from __future__ import annotations

from tests.kit.kafka.transactions import read_all


def keys_and_values(servers: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Every record that a read_committed reader sees, to the ends of all partitions."""
    return [(record.key, record.value) for record in read_all(servers, topic)]
