"""What an operator can do to prepared epochs, and how it is told: nothing is lost in silence."""

from __future__ import annotations

import re

import pytest

from exactum.errors import CheckpointRefused, EpochAborted, ExactumError, HeuristicOutcome
from exactum.protocol.model import Decision, DecisionRecord, Epoch, SourceOffsets
from exactum.protocol.sink import WriteOrder
from exactum.testing import MemoryStorage
from exactum.testing.memory import permit_of
from tests.kit.sql.sql_database import NOTHING, SqlDatabase
from tests.kit.sql.sql_epochs import expected
from tests.sql.test_epochs import decided, query_on, rows_in


def staging_of(database: SqlDatabase) -> str:
    return str(database.value("SELECT staging FROM exactum_prepared LIMIT 1"))


def statement_in(error: ExactumError) -> str:
    found = re.search(r"INSERT INTO .*?(?=; and start)", str(error))
    assert found is not None
    return found[0]


def test_a_prepared_transaction_is_rolled_back_by_hand(database: SqlDatabase) -> None:
    """The rollback of a transaction of a decided epoch stops the query: which one, how many rows, and how to
    go on.
    """
    table = database.table()
    query, driver, allowed = decided(database, table, "prepared")
    gid = allowed.record.prepared[1].identity
    database.roll_back(gid)
    driver.close()
    with pytest.raises(HeuristicOutcome, match=f"{gid} with 4 rows was rolled back") as caught:
        query.run(0)
    missing = sorted(set(expected([0])) - set(rows_in(database, table)))
    assert [i for i, _ in missing] == [100, 101, 102, 103]
    for row in missing:
        database.run(f"INSERT INTO {table} VALUES (%s, %s)", row)
    database.run(statement_in(caught.value))
    last = query.start()
    assert not last.run(0).written
    last.run(1)
    last.close()
    assert rows_in(database, table) == expected([0, 1])
    assert database.leftovers() == NOTHING


def test_staging_is_emptied_by_hand_after_the_decision(database: SqlDatabase) -> None:
    """TRUNCATE of the staging table of a decided epoch stops the query, says what is missing and
    how to go on.
    """
    table = database.table()
    query, driver, _ = decided(database, table, "staged")
    driver.close()
    database.run(f"TRUNCATE {staging_of(database)}")
    with pytest.raises(HeuristicOutcome, match="4 of 4 rows") as caught:
        query.run(0)
    assert rows_in(database, table) == []
    for row in expected([0]):
        database.run(f"INSERT INTO {table} VALUES (%s, %s)", row)
    database.run(statement_in(caught.value))
    last = query.start()
    assert not last.run(0).written
    last.run(1)
    last.close()
    assert rows_in(database, table) == expected([0, 1])


def test_a_part_of_staging_is_deleted_by_hand(database: SqlDatabase) -> None:
    """One row of a decided epoch deleted: nothing of the epoch gets into the table, and the part
    is named.
    """
    table = database.table()
    query, driver, _ = decided(database, table, "staged")
    driver.close()
    database.run(f"DELETE FROM {staging_of(database)} WHERE id = 101")
    with pytest.raises(HeuristicOutcome, match="1 of 4 rows"):
        query.run(0)
    assert rows_in(database, table) == []


def test_staging_is_dropped_by_hand(database: SqlDatabase) -> None:
    """DROP TABLE of the staging table of a decided epoch is told like its TRUNCATE."""
    table = database.table()
    query, driver, _ = decided(database, table, "staged")
    driver.close()
    database.run(f"DROP TABLE {staging_of(database)}")
    with pytest.raises(HeuristicOutcome, match="4 of 4 rows"):
        query.run(0)


def test_staging_is_emptied_before_the_decision(database: SqlDatabase) -> None:
    """Rows that go between prepare and verify abort the epoch; the next run is exact."""
    table = database.table()
    query = query_on(database, table, "staged")
    driver = query.start()

    def write(order: WriteOrder) -> object:
        prepared = driver.write(order)
        database.run(f"TRUNCATE {staging_of(database)}")
        return prepared

    with pytest.raises(EpochAborted, match="4 of 4 rows"):
        driver.coordinator.run(0, SourceOffsets(), write)  # type: ignore[arg-type]
    driver.close()
    following = query.start()
    following.run(0)
    following.close()
    assert rows_in(database, table) == expected([0])
    assert database.leftovers() == NOTHING


def test_a_prepared_transaction_goes_before_the_decision(database: SqlDatabase) -> None:
    """A rollback between prepare and verify aborts the epoch; the next run is exact."""
    table = database.table()
    query = query_on(database, table, "prepared")
    driver = query.start()

    def write(order: WriteOrder) -> object:
        prepared = driver.write(order)
        database.roll_back(prepared[0].identity)
        return prepared

    with pytest.raises(EpochAborted, match="is not there any more"):
        driver.coordinator.run(0, SourceOffsets(), write)  # type: ignore[arg-type]
    driver.close()
    following = query.start()
    following.run(0)
    following.close()
    assert rows_in(database, table) == expected([0])
    assert database.leftovers() == NOTHING


@pytest.mark.parametrize("mechanism", ["staged", "prepared"])
def test_a_lost_decision_log_is_noticed(database: SqlDatabase, mechanism: str) -> None:
    """A query that begins again at batch 0 with an empty decision log is refused: the table
    knows the batch.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    driver = query.start()
    driver.run(0)
    driver.close()
    query.storage = MemoryStorage()
    with pytest.raises(CheckpointRefused, match="has batch 0"):
        query.run(0)
    assert rows_in(database, table) == expected([0])
    assert database.leftovers() == NOTHING


def test_two_queries_of_one_id_are_noticed_at_the_commit(database: SqlDatabase) -> None:
    """A decided epoch whose batch somebody else has committed meanwhile is not taken for its
    own.
    """
    table = database.table()
    _, driver, allowed = decided(database, table, "staged")
    driver.close()
    copy = query_on(database, table, "staged")
    copy.query_id = allowed.record.epoch.query_id
    other = copy.start()
    prepared = other.write(WriteOrder(other.run_of, 0, 0, 1))
    other.participant.verify(prepared)
    record = DecisionRecord(
        Epoch(copy.query_id, 0), 1, Decision.COMMIT, other.run_of.incarnation, tuple(prepared)
    )
    other.participant.commit(permit_of(record), prepared)
    with pytest.raises(HeuristicOutcome, match="from other transactions"):
        driver.participant.commit(allowed, allowed.record.prepared)
    for one in (driver, other):
        one.close()
    assert rows_in(database, table) == expected([0])


def test_the_table_refuses_after_the_decision(database: SqlDatabase) -> None:
    """A row that somebody wrote between decision and redelivery stops the query; without it, it
    goes on, exactly.
    """
    table = database.table("id bigint PRIMARY KEY, name text")
    query, driver, _ = decided(database, table, "staged")
    driver.close()
    database.run(f"INSERT INTO {table} VALUES (101, 'an intruder')")
    with pytest.raises(HeuristicOutcome, match="[Dd]uplicate.*nothing is lost"):
        query.run(0)
    database.run(f"DELETE FROM {table} WHERE id = 101")
    last = query.start()
    assert not last.run(0).written
    last.close()
    assert rows_in(database, table) == expected([0])
    assert database.leftovers() == NOTHING


@pytest.mark.parametrize("mechanism", ["staged", "prepared"])
def test_a_decision_log_of_yesterday_is_noticed(database: SqlDatabase, mechanism: str) -> None:
    """One restored from an older copy is refused instead of doubling an epoch."""
    table = database.table()
    query = query_on(database, table, mechanism)
    driver = query.start()
    for batch_id in range(3):
        driver.run(batch_id)
    driver.close()
    for slot in [slot for slot in query.storage.records if slot[1] >= 1]:
        del query.storage.records[slot]
    with pytest.raises(CheckpointRefused):
        query.run(1)
    assert rows_in(database, table) == expected([0, 1, 2])
    assert database.leftovers() == NOTHING
