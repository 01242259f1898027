"""One real MariaDB for these tests, and databases on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exactum.local.mariadb import LocalMariaDB
from tests.kit.mysql.mysql_database import Database


@pytest.fixture(scope="session")
def mariadb() -> Iterator[LocalMariaDB]:
    """One server for the session. A missing one is an error here, never a skip."""
    with LocalMariaDB() as server:
        yield server


@pytest.fixture
def database(mariadb: LocalMariaDB) -> Iterator[Database]:
    """An empty database of this test, and a plain client for it."""
    with Database.made(mariadb) as made:
        yield made
