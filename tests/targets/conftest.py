"""A broker that these tests may kill; the database servers are the session's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exactum.local import LocalKafka


@pytest.fixture(scope="session")
def mortal_kafka() -> Iterator[LocalKafka]:
    """A broker of this folder's own: killing the whole session's would end other tests'
    connections.
    """
    with LocalKafka(
        properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    ) as cluster:
        yield cluster
