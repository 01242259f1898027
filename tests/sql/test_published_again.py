"""A database that has lost its last batches, as after a failover to an asynchronous standby: they are
published again from the staged files that are kept, in order, before anything new; else refused.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from exactum.errors import CheckpointRefused
from exactum.sinks.staged import BATCHES_KEPT
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import Query, expected, rows_of


def query_on(database: SqlDatabase, table: str, **settings: object) -> Query:
    return Query(lambda: database.sink(table, **settings), str(uuid.uuid4()))


def rows_in(database: SqlDatabase, table: str) -> list[tuple[int, str]]:
    return sorted(database.rows(f"SELECT id, name FROM {table}"))


def lost(database: SqlDatabase, table: str, *batches: int) -> None:
    """The database as it was before these batches: their rows and the ledger's."""
    for batch_id in batches:
        ids = [row[0] for task in rows_of(batch_id) for row in task]
        database.run(f"DELETE FROM {table} WHERE id IN ({', '.join(map(str, ids))})")
        database.run(f"DELETE FROM exactum_ledger WHERE batch_id = {batch_id}")


def staged(query: Query) -> list[Path]:
    return sorted(Path(query.staging).glob("*/*.staged"))


@pytest.mark.parametrize(
    "settings", [{}, {"mode": "upsert", "key": "id"}], ids=["append", "upsert"]
)
def test_what_is_kept_is_published_again(
    database: SqlDatabase, settings: dict[str, object]
) -> None:
    table = database.table("id bigint PRIMARY KEY, name text")
    query = query_on(database, table, **settings)
    query.run(*range(6))
    kept = list(range(6 - BATCHES_KEPT, 6))
    lost(database, table, *kept)
    query.run(6)
    assert rows_in(database, table) == expected(list(range(7)))
    assert [n for (n,) in database.rows("SELECT batch_id FROM exactum_ledger ORDER BY 1")] == list(
        range(7)
    )


def test_a_run_that_is_alive_stops_and_its_successor_makes_it_whole(database: SqlDatabase) -> None:
    table = database.table()
    query = query_on(database, table)
    driver = query.start()
    for batch_id in range(3):
        driver.run(batch_id)
    lost(database, table, 1, 2)
    with pytest.raises(CheckpointRefused) as refused:
        driver.run(3)
    assert refused.value.code == "ENDS_DIFFER"
    driver.close()
    assert rows_in(database, table) == expected([0])
    query.run(3)
    assert rows_in(database, table) == expected([0, 1, 2, 3])


def test_more_than_what_is_kept_is_refused(database: SqlDatabase) -> None:
    """Nothing is written past a gap."""
    table = database.table()
    query = query_on(database, table)
    query.run(*range(7))
    lost(database, table, *range(6 - BATCHES_KEPT, 7))
    with pytest.raises(CheckpointRefused) as refused:
        query.run(7)
    assert refused.value.code == "ENDS_DIFFER"
    assert rows_in(database, table) == expected(list(range(6 - BATCHES_KEPT)))


def test_where_a_kept_file_is_gone_it_is_refused(database: SqlDatabase) -> None:
    table = database.table()
    query = query_on(database, table)
    query.run(0, 1, 2)
    lost(database, table, 1, 2)
    next(path for path in staged(query) if path.name.startswith("0000000001")).unlink()
    with pytest.raises(CheckpointRefused) as refused:
        query.run(3)
    assert refused.value.code == "ENDS_DIFFER"
    assert rows_in(database, table) == expected([0])


def test_the_last_batches_alone_are_kept(database: SqlDatabase) -> None:
    table = database.table()
    query = query_on(database, table)
    query.run(*range(BATCHES_KEPT + 3))
    assert {int(path.name.split("-")[0]) for path in staged(query)} == set(
        range(3, BATCHES_KEPT + 3)
    )
