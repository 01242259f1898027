"""Topics with the names that a page or a template gives them, on the servers that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from exactum.local import LocalKafka


@contextmanager
def topics_named(kafka: LocalKafka, *names: str, partitions: int) -> Iterator[None]:
    """They exist in the block, and afterwards another test can make them."""
    for name in names:
        kafka.create_topic(name, partitions=partitions)
    try:
        yield
    finally:
        for name in names:
            kafka.delete_topic(name)
