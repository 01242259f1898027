"""What else writes to a table or a decision log: nothing is lost in silence."""

from __future__ import annotations

import pytest

from exactum.errors import CheckpointRefused, HeuristicOutcome
from exactum.protocol.model import Decision, DecisionRecord, Epoch
from exactum.protocol.sink import WriteOrder
from exactum.testing import MemoryStorage
from exactum.testing.memory import permit_of
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import expected
from tests.sql.test_epochs import decided, query_on, rows_in


def test_a_lost_decision_log_is_noticed(database: SqlDatabase) -> None:
    """A query that begins again at batch 0 with an empty decision log is refused: the table
    knows the batch.
    """
    table = database.table()
    query = query_on(database, table)
    driver = query.start()
    driver.run(0)
    driver.close()
    query.storage = MemoryStorage()
    with pytest.raises(CheckpointRefused, match="has batch 0"):
        query.run(0)
    assert rows_in(database, table) == expected([0])
    assert query.staged() == []


def test_two_queries_of_one_id_are_noticed_at_the_commit(database: SqlDatabase) -> None:
    """A decided epoch whose batch somebody else has committed meanwhile is not taken for its
    own.
    """
    table = database.table()
    _, driver, allowed = decided(database, table)
    driver.close()
    copy = query_on(database, table)
    copy.query_id = allowed.record.epoch.query_id
    other = copy.start()
    prepared = other.write(WriteOrder(other.run_of, 0, 0, 1))
    other.participant.verify(prepared)
    record = DecisionRecord(
        Epoch(copy.query_id, 0), 1, Decision.COMMIT, other.run_of.incarnation, tuple(prepared)
    )
    other.participant.commit(permit_of(record), prepared)
    with pytest.raises(HeuristicOutcome, match="from other files"):
        driver.participant.commit(allowed, allowed.record.prepared)
    for one in (driver, other):
        one.close()
    assert rows_in(database, table) == expected([0])


def test_the_table_refuses_after_the_decision(database: SqlDatabase) -> None:
    """A row that somebody wrote between decision and redelivery stops the query; without it, it
    goes on, exactly.
    """
    table = database.table("id bigint PRIMARY KEY, name text")
    query, driver, _ = decided(database, table)
    driver.close()
    database.run(f"INSERT INTO {table} VALUES (101, 'an intruder')")
    with pytest.raises(HeuristicOutcome, match="(?s)[Dd]uplicate.*nothing is lost"):
        query.run(0)
    database.run(f"DELETE FROM {table} WHERE id = 101")
    last = query.start()
    assert not last.run(0).written
    last.close()
    assert rows_in(database, table) == expected([0])
    assert query.staged() == []


def test_a_decision_log_of_yesterday_is_noticed(database: SqlDatabase) -> None:
    """One restored from an older copy is refused instead of doubling an epoch."""
    table = database.table()
    query = query_on(database, table)
    driver = query.start()
    for batch_id in range(3):
        driver.run(batch_id)
    driver.close()
    for slot in [slot for slot in query.storage.records if slot[1] >= 1]:
        del query.storage.records[slot]
    with pytest.raises(CheckpointRefused):
        query.run(1)
    assert rows_in(database, table) == expected([0, 1, 2])
    assert query.staged() == []
