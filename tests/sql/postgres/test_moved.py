"""A sink whose URL names another database for a while, and then the former one again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from exactum.errors import CheckpointRefused, SettingRefused
from tests.kit.errors import raised
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import Query, expected
from tests.sql.test_epochs import permit, rows_in

pytestmark = pytest.mark.postgres

OTHER = "moved_to"


@dataclass
class Moving:
    """A query, and the table of the same name in two databases."""

    database: Database
    table: str
    query: Query

    def to(self, url: str) -> None:
        self.query.sink = lambda: self.database.sink(self.table, url)

    def there(self) -> None:
        self.to(self.database.server.url_of(OTHER))

    def back(self) -> None:
        self.to(self.database.url)

    def holds(self, *batches: int) -> None:
        assert rows_in(self.database, self.table) == expected(batches)

    def holds_there(self, *batches: int) -> None:
        with psycopg.connect(self.database.server.url_of(OTHER)) as client:
            rows = client.execute(f"SELECT id, name FROM {self.table}".encode()).fetchall()
        assert sorted(rows) == expected(batches)


@pytest.fixture
def moving(database: Database) -> Iterator[Moving]:
    table = database.table()
    database.run(f"CREATE DATABASE {OTHER}")
    try:
        with psycopg.connect(database.server.url_of(OTHER), autocommit=True) as client:
            client.execute(f"CREATE TABLE {table} (id bigint, name text)".encode())
        yield Moving(database, table, database.query(table))
    finally:
        database.run(f"DROP DATABASE {OTHER} WITH (FORCE)")


def test_what_was_loaded_there_is_not_loaded_here_as_well(moving: Moving) -> None:
    """Its files are in the staging still, and this database lacks it."""
    moving.query.run(0)
    moving.there()
    moving.query.run(1)
    moving.back()
    for _ in range(2):
        with raised(CheckpointRefused, "ENDS_DIFFER", "batch 0", "batch 1"):
            moving.query.run(2)
    moving.holds(0)
    moving.holds_there(1)


@pytest.mark.parametrize("is_done", [True, False], ids=["committed", "not yet"])
def test_what_is_decided_goes_where_it_was_staged_for(moving: Moving, is_done: bool) -> None:
    query = moving.query
    query.run(0)
    moving.there()
    query.die_before_commit(1)
    if is_done:
        driver, given = query.start(), permit(query, 1)
        driver.participant.commit(given, given.record.prepared)
        driver.close()
    moving.back()
    for _ in range(2):
        with raised(SettingRefused, "SINK_MOVED", OTHER):
            query.run(1)
    moving.holds(0)
    moving.there()
    query.run(1)
    moving.holds(0)
    moving.holds_there(1)
