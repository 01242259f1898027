"""A broker and a PostgreSQL that these tests may kill. (MariaDB's tests are in one process.)"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exactum.local import LocalKafka
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.servers.shared import started_postgres


@pytest.fixture(scope="session")
def mortal_kafka() -> Iterator[LocalKafka]:
    """A broker of this folder's own: killing the whole session's would end other tests'
    connections.
    """
    with LocalKafka(
        properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    """A PostgreSQL of this folder's own."""
    with started_postgres() as server:
        yield server
