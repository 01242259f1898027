"""A server that has lost its last commit and still holds what was prepared for it, as after a
failover to an asynchronous standby: refused with both numbers, and never swept.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from exactum import PostgresSink
from exactum.errors import (
    CheckpointRefused,
    HeuristicOutcome,
    RowsRefused,
    Unavailable,
)
from exactum.protocol.model import CommitReport
from exactum.sql.plan import SqlScope
from exactum.testing.memory import permit_of
from tests.kit.sql.replicated import pair, until
from tests.kit.sql.sql_database import NOTHING, SqlDatabase
from tests.kit.sql.sql_epochs import ID_AND_NAME, Incarnation, Query, expected
from tests.sql.test_epochs import MECHANISMS, decided, query_on, rows_in

both = pytest.mark.parametrize("mechanism", MECHANISMS)


def loses_commit_of(driver: Incarnation, batch_id: int) -> None:
    """The server says that it is committed, and goes back to the moment before."""
    commit = driver.participant.commit

    def lost(permit, prepared):  # type: ignore[no-untyped-def]
        if permit.record.epoch.batch_id == batch_id:
            driver.participant.commit = commit  # type: ignore[method-assign]
            return CommitReport(tuple(prepared))
        return commit(permit, prepared)

    driver.participant.commit = lost  # type: ignore[method-assign]


@both
def test_a_commit_that_failed_is_carried_out_by_the_next_start(
    database: SqlDatabase, mechanism: str
) -> None:
    """The user's function caught the error, and Spark has logged batch 0 as done. Nothing is there
    that could have been lost.
    """
    table = database.table()
    query, driver, _ = decided(database, table, mechanism)
    driver.close()
    query.run(1)
    assert rows_in(database, table) == expected([0, 1])
    assert database.leftovers() == NOTHING


@both
def test_refused_by_the_run_and_by_each_start(database: SqlDatabase, mechanism: str) -> None:
    """What waits is kept, for 'exactum transactions finish'."""
    table = database.table()
    query = query_on(database, table, mechanism)
    driver = query.start()
    driver.run(0)
    loses_commit_of(driver, 1)
    driver.run(1)
    before = database.leftovers()
    said = "ends with batch 0, and the decision log has batch 1 as committed there"
    with pytest.raises(CheckpointRefused, match=said):
        driver.run(2)
    driver.close()
    for _ in range(2):
        with pytest.raises(CheckpointRefused, match=said):
            query.run(2)
    assert rows_in(database, table) == expected([0])
    assert database.leftovers() == before
    record = max(query.storage.records.values(), key=lambda r: (r.epoch.batch_id, r.attempt))
    again = query.start()
    again.participant.commit(permit_of(record), record.prepared)
    again.close()
    query.run(2)
    assert rows_in(database, table) == expected([0, 1, 2])
    assert database.leftovers() == NOTHING


def test_a_part_of_a_commit_is_lost(database: SqlDatabase) -> None:
    """Of tasks that are committed one by one, the last is only prepared: the ledger has the batch.
    The run commits it before it decides the next one.
    """
    table = database.table()
    query = query_on(database, table, "prepared")
    driver = query.start()
    commit = driver.participant.commit

    def in_part(permit, prepared):  # type: ignore[no-untyped-def]
        commit(permit, prepared[1:])
        driver.participant.commit = commit  # type: ignore[method-assign]
        return CommitReport(tuple(prepared))

    driver.participant.commit = in_part  # type: ignore[method-assign]
    driver.run(0)
    driver.run(1)
    driver.close()
    assert rows_in(database, table) == expected([0, 1])
    assert database.leftovers() == NOTHING


def children(batch_id: int) -> list[list[pa.RecordBatch]]:
    """A row that names the one of the batch before."""
    row = {"id": batch_id, "name": "a row", "parent": batch_id - 1 if batch_id else None}
    fields = [("id", pa.int64()), ("name", pa.string()), ("parent", pa.int64())]
    return [[pa.RecordBatch.from_pylist([row], schema=pa.schema(fields))]]


def family(database: SqlDatabase, mechanism: str) -> tuple[str, Query]:
    table = database.table("id bigint PRIMARY KEY, name varchar(50), parent bigint")
    database.run(f"ALTER TABLE {table} ADD FOREIGN KEY (parent) REFERENCES {table} (id)")
    query = query_on(database, table, mechanism)
    query.columns, query.tasks = (*ID_AND_NAME, ("parent", "bigint")), children
    return table, query


def test_rows_that_refer_to_a_lost_commit(database: SqlDatabase) -> None:
    """The target refuses them as long as it lacks what they refer to. The rows are correct, and
    nobody is told to correct them. Prepared rows of MariaDB hold locks, so tasks wait for them.
    """
    is_postgres = database.dialect.scheme == "postgres"
    table, query = family(database, "prepared" if is_postgres else "staged")
    driver = query.start()
    driver.run(0)
    loses_commit_of(driver, 1)
    driver.run(1)
    with pytest.raises(CheckpointRefused, match="batch 1 as committed there"):
        driver.run(2)
    driver.close()
    assert database.value(f"SELECT count(*) FROM {table}") == 1


def test_rows_that_refer_to_nothing(database: SqlDatabase) -> None:
    """Nothing was lost: they are refused as ever."""
    _, query = family(database, "staged")
    query.tasks = lambda batch_id: children(batch_id + 1)
    with pytest.raises(RowsRefused, match="Correct the rows"):
        query.run(0)
    assert database.leftovers() == NOTHING


@both
def test_a_run_that_gives_up_leaves_them(database: SqlDatabase, mechanism: str) -> None:
    """It aborts its own: not what it has decided, which is its own as well. Nor does the sweep
    between two micro-batches.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    driver = query.start()
    loses_commit_of(driver, 0)
    driver.run(0)
    before = database.leftovers()
    assert before != NOTHING
    assert driver.coordinator.sweep_own(0) == 0

    def fails(*_: object) -> object:
        raise Unavailable("a task failed")

    driver.participant.last_batch = fails  # type: ignore[method-assign, assignment]
    with pytest.raises(Unavailable):
        driver.run(1)
    assert driver.coordinator.sweep_own(1) == 0
    driver.close()
    assert database.leftovers() == before
    query.run(1)
    assert rows_in(database, table) == expected([0, 1])
    assert database.leftovers() == NOTHING


@both
def test_what_is_gone_in_part_is_said(database: SqlDatabase, mechanism: str) -> None:
    """Nothing more is undone, and nothing later is decided."""
    table = database.table()
    query, driver, _ = decided(database, table, mechanism)
    one = sorted(s.identity for s in driver.participant.list_open())[0]
    driver.close()
    if mechanism == "prepared":
        database.roll_back(one)
    else:
        database.run(f"DELETE FROM {database.staging()[0]} WHERE id = 0")
    before = database.leftovers()
    with pytest.raises(HeuristicOutcome, match="are gone from sink"):
        query.run(1)
    rows = rows_in(database, table)
    assert len(rows) == (8 if mechanism == "prepared" else 0) and set(rows) < set(expected([0]))
    assert mechanism == "prepared" or database.leftovers() == before


@both
def test_what_is_gone_in_part_is_kept_as_decided(database: SqlDatabase, mechanism: str) -> None:
    """The way of docs/guarantees.md, "Keep the batch as decided": Spark never repeats the batch. What
    is left of it is not written and not undone by the start: the operator loads what is missing.
    """
    table = database.table()
    query, driver, _ = decided(database, table, mechanism)
    one = sorted(s.identity for s in driver.participant.list_open())[0]
    driver.close()
    if mechanism == "prepared":
        database.roll_back(one)
    else:
        database.run(f"DELETE FROM {database.staging()[0]} WHERE id = 0")
    with pytest.raises(HeuristicOutcome, match="accept --without"):
        query.run(1)
    before = rows_in(database, table)
    slot, record = max(query.storage.records.items(), key=lambda item: item[0])
    kept = replace(record, attempt=record.attempt + 1, supersedes=record.attempt, prepared=())
    query.storage.records[(*slot[:2], kept.attempt)] = kept
    query.run(1)
    query.run(2)
    assert rows_in(database, table) == sorted([*before, *expected([1, 2])])


def test_a_later_batch_is_there_already(database: SqlDatabase) -> None:
    """A ledger row of a later batch speaks for those before it, but not for rows that are still
    staged.
    """
    table = database.table()
    query, driver, allowed = decided(database, table, "staged")
    driver.close()
    scope = SqlScope(query.query_id, driver.participant.name).text
    database.run(
        "INSERT INTO exactum_ledger (scope, batch_id, identity, digest, attempt, row_count) "
        "VALUES (%s, 7, '*', 'x', 0, 12)",
        [scope],
    )
    before = database.leftovers()
    following = query.start()
    with pytest.raises(HeuristicOutcome, match="are still staged, and .* has a later batch"):
        following.participant.commit(allowed, allowed.record.prepared)
    following.close()
    assert rows_in(database, table) == []
    assert database.leftovers() == before


@pytest.mark.postgres
@pytest.mark.deep
def test_a_failover_between_prepare_and_commit() -> None:
    """Of a real pair: the standby has what the tasks staged and not the COMMIT, and the driver
    lives on: it writes nothing past the gap.
    """
    with tempfile.TemporaryDirectory(prefix="exactum-pair-") as name:
        Path(name).chmod(0o755)
        with pair(Path(name)) as servers:
            servers.run("CREATE TABLE t (id bigint, name text)")
            query = Query(lambda: PostgresSink(servers.url, table="t"), "failover")
            driver = query.start()
            driver.run(0)
            commit = driver.participant.commit

            def late(permit, prepared):  # type: ignore[no-untyped-def]
                until(servers.caught_up, "the standby has what is staged")
                servers.standby.kill()
                driver.participant.commit = commit  # type: ignore[method-assign]
                return commit(permit, prepared)

            driver.participant.commit = late  # type: ignore[method-assign]
            driver.run(1)
            servers.primary.kill()
            servers.standby.start()
            servers.promote()
            with pytest.raises(CheckpointRefused, match="ends with batch 0, .* has batch 1 as"):
                driver.run(2)
            driver.close()
            rows = servers.run("SELECT id, name FROM t ORDER BY 1", servers.standby)
            assert rows == expected([0])
