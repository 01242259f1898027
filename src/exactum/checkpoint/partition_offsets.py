"""Offsets by partition, and the JSON in which Spark writes them: ``{"orders":{"0":123,"1":7}}``."""

from __future__ import annotations

import json
from collections.abc import Mapping

from exactum.kafka.transaction import Partition

Offsets = dict[Partition, int]
"""The next offset to read of each partition."""


def to_json(offsets: Mapping[Partition, int]) -> str:
    """Spark's form, with sorted keys."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(index)] = offset
    return json.dumps(topics, separators=(",", ":"))


def from_json(text: str | None) -> Offsets:
    """The offsets in Spark's form; empty where there is no text, or where it is another
    source's.
    """
    if text is None:
        return {}
    try:
        topics = json.loads(text)
        return {
            (topic, int(index)): int(offset)
            for topic, cells in topics.items()
            for index, offset in cells.items()
        }
    except (ValueError, AttributeError, TypeError):
        return {}


def name_of(partition: Partition) -> str:
    """``orders-0``, as Kafka's tools write it."""
    return f"{partition[0]}-{partition[1]}"


def as_argument(offsets: Mapping[Partition, int]) -> str:
    """As a user writes it in Python: ``{'orders': {0: 123, 1: 7}}``."""
    topics: dict[str, dict[int, int]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[index] = offset
    return repr(topics)
