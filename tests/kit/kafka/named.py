"""Topics with the names that a page or a template gives them, on the servers that tests share."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exactum.local import LocalKafka


@contextmanager
def topics_named(kafka: LocalKafka, *names: str, partitions: int) -> Iterator[None]:
    """They exist in the block, and afterwards another test can make them."""
    with in_turn():
        for name in names:
            kafka.create_topic(name, partitions=partitions)
        try:
            yield
        finally:
            for name in names:
                kafka.delete_topic(name)


@contextmanager
def in_turn() -> Iterator[None]:
    """Meanwhile no other test process makes topics with such names."""
    with Path(tempfile.gettempdir(), "exactum-tests-topics.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
