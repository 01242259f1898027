"""A broker that these tests may kill; the database servers are the session's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exactum.local import LocalKafka

# The jobs, deaths and Kafka oracle of the crash tests serve here as well, and ``exactum run`` as a
# process.
sys.path[:0] = [
    str(Path(__file__).parent),
    *(str(Path(__file__).parents[1] / folder) for folder in ("crash", "run")),
]


@pytest.fixture(scope="session")
def mortal_kafka() -> Iterator[LocalKafka]:
    """A broker of this folder's own: killing the whole session's would end other tests'
    connections.
    """
    with LocalKafka(
        properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    ) as cluster:
        yield cluster
