"""A database that is older than the decision log, as after a failover to an asynchronous standby: what
it has lost is published again from the staged files that are kept, in order, before anything new. One
that lacks more, or is newer, is refused at the start with both numbers, until a person accepts it.
"""

from __future__ import annotations

import pytest

from exactum.errors import CheckpointRefused
from exactum.protocol.sink import TaskName, WriteOrder
from exactum.sinks.staged import BATCHES_KEPT
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import expected, tasks_of
from tests.sql.test_epochs import query_on, rows_in


def restored(database: SqlDatabase, table: str, last: int) -> None:
    """As it was after batch ``last``."""
    database.run("DELETE FROM exactum_ledger WHERE batch_id > %s", [last])
    database.run(f"DELETE FROM {table} WHERE id >= %s", [1000 * (last + 1)])


def lacks(last: int, owed: int) -> str:
    return f"ends with batch {last}, and the decision log has batch {owed} as committed there"


@pytest.mark.parametrize(
    "settings", [{}, {"mode": "upsert", "key": "id"}], ids=["append", "upsert"]
)
def test_what_is_kept_is_published_again(
    database: SqlDatabase, settings: dict[str, object]
) -> None:
    table = database.table("id bigint PRIMARY KEY, name text")
    query = query_on(database, table)
    query.sink = lambda: database.sink(table, **settings)
    query.run(*range(6))
    restored(database, table, 5 - BATCHES_KEPT)
    query.run(6)
    assert rows_in(database, table) == expected(list(range(7)))
    assert database.rows("SELECT batch_id FROM exactum_ledger ORDER BY 1") == [
        (batch_id,) for batch_id in range(7)
    ]


def test_where_a_kept_file_is_gone_it_is_refused(database: SqlDatabase) -> None:
    table = database.table()
    query = query_on(database, table)
    query.run(0, 1, 2)
    restored(database, table, 0)
    next(query.staging.glob("*/0000000001*.staged")).unlink()
    with pytest.raises(CheckpointRefused, match=lacks(0, 2)):
        query.run(3)
    assert rows_in(database, table) == expected([0])


def test_the_last_batches_alone_are_kept(database: SqlDatabase) -> None:
    query = query_on(database, database.table())
    query.run(*range(BATCHES_KEPT + 3))
    kept = {int(path.name.split("-")[0]) for path in query.staging.glob("*/*.staged")}
    assert kept == set(range(3, BATCHES_KEPT + 3))


def test_an_older_copy(database: SqlDatabase) -> None:
    """As often as it is tried: one that lacks more than the kept files have."""
    table = database.table()
    query = query_on(database, table)
    query.run(*range(12))
    restored(database, table, 1)
    for _ in range(2):
        with pytest.raises(CheckpointRefused, match=lacks(1, 11)):
            query.run(12)
    assert rows_in(database, table) == expected([0, 1])
    assert query.staged() == []


@pytest.mark.variants(1)
@pytest.mark.parametrize("waits", ["nothing", "another part"])
def test_a_living_run_stops_before_it_writes_on(database: SqlDatabase, waits: str) -> None:
    """The server fails over under it, and holds nothing of the last commit that waits. A part of a
    speculative task, or of a batch long ago, is no reason to go on. Its successor makes it whole.
    """
    table = database.table()
    query = query_on(database, table)
    driver = query.start()
    for batch_id in range(3):
        driver.run(batch_id)
    restored(database, table, 1)
    if waits == "another part":
        driver.write.task(WriteOrder(driver.run_of, 2, 0, 9), TaskName(0, 1, 0), tasks_of(2)[0])
    with pytest.raises(CheckpointRefused, match=lacks(1, 2)):
        driver.run(3)
    driver.close()
    assert rows_in(database, table) == expected([0, 1])
    assert query.staged() == []
    query.run(3)
    assert rows_in(database, table) == expected([0, 1, 2, 3])


def test_a_living_run_of_which_the_ledger_knows_nothing(database: SqlDatabase) -> None:
    """A new query's first batches are lost in a failover. The next start takes it for emptied on
    purpose.
    """
    table = database.table()
    query = query_on(database, table)
    driver = query.start()
    driver.run(0)
    restored(database, table, -1)
    with pytest.raises(CheckpointRefused, match="has no batch of it, .* batch 0 as committed"):
        driver.run(1)
    driver.close()
    assert rows_in(database, table) == []
    assert query.staged() == []
    query.run(1)
    assert rows_in(database, table) == expected([1])


def test_batches_without_rows_leave_no_trace(database: SqlDatabase) -> None:
    """The last batch with rows counts; where it is too far back, nothing is asked."""
    table = database.table()
    query = query_on(database, table)
    query.tasks = lambda batch_id: tasks_of(batch_id) if batch_id in (0, 8) else [[]]
    for batch_id in range(10):
        query.run(batch_id)
    assert rows_in(database, table) == expected([0, 8])


def test_a_database_that_is_newer_may_be_forgotten(database: SqlDatabase) -> None:
    """The log went back alone. What was accepted is written again."""
    table = database.table()
    query = query_on(database, table)
    query.run(0, 1)
    for slot in [slot for slot in query.storage.records if slot[1:] >= (1, 0)]:
        del query.storage.records[slot]
    with pytest.raises(CheckpointRefused, match="has batch 1, and the decision log ends with .* 0"):
        query.run(1)
    driver = query.start()
    driver.participant.forget_batches()  # type: ignore[attr-defined]
    driver.close()
    query.run(1)
    assert rows_in(database, table) == expected([0, 1, 1])


def test_a_ledger_that_was_emptied_is_none_that_went_back(database: SqlDatabase) -> None:
    """To write batches again on purpose, by docs/guarantees.md; or another database of that name."""
    table = database.table()
    query = query_on(database, table)
    query.run(0, 1)
    database.run("DELETE FROM exactum_ledger")
    query.run(2)
    assert rows_in(database, table) == expected([0, 1, 2])


def test_another_table_of_the_same_schema(database: SqlDatabase) -> None:
    """The ledger is the schema's: it tells of the sink, whatever table it writes to. What was lost
    goes where it was.
    """
    table = database.table()
    query = query_on(database, table)
    query.participant = "kept"
    query.run(0, 1, 2)
    restored(database, table, 1)
    other = database.table()
    query.sink = lambda: database.sink(other)
    query.run(3)
    assert rows_in(database, table) == expected([0, 1, 2])
    assert rows_in(database, other) == expected([3])
