"""A server that has lost its last commit and still holds what was prepared for it, as after a
failover to an asynchronous standby: the decided rows are committed again, and never swept.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from exactum import PostgresSink
from exactum.errors import (
    EpochAborted,
    HeuristicOutcome,
    RowsRefused,
    Unavailable,
)
from exactum.protocol.model import CommitReport
from exactum.sql.plan import SqlScope
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.replicated import pair, until
from tests.kit.sql.sql_database import NOTHING, SqlDatabase
from tests.kit.sql.sql_epochs import ID_AND_NAME, Incarnation, Query, expected
from tests.sql.test_epochs import MECHANISMS, decided, query_on, rows_in

both = pytest.mark.parametrize("mechanism", MECHANISMS)
WARNING = "had lost a commit"


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
def test_the_next_start_commits_again(
    database: SqlDatabase, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark has logged batch 0 as done, and goes on with batch 1."""
    table = database.table()
    query, driver, _ = decided(database, table, mechanism)
    driver.close()
    following = query.start()
    following.run(1)
    following.close()
    assert rows_in(database, table) == expected([0, 1])
    assert database.leftovers() == NOTHING
    assert WARNING in caplog.text


@both
def test_a_living_run_commits_again_before_it_decides(
    database: SqlDatabase, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At the next micro-batch's own listing."""
    table = database.table()
    driver = query_on(database, table, mechanism).start()
    driver.run(0)
    loses_commit_of(driver, 1)
    for batch_id in (1, 2, 3):
        driver.run(batch_id)
    driver.close()
    assert rows_in(database, table) == expected([0, 1, 2, 3])
    assert database.leftovers() == NOTHING
    assert caplog.text.count(WARNING) == 1


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


def test_rows_that_refer_to_a_lost_commit(
    database: SqlDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """The target refuses them as long as it lacks what they refer to. The rows are correct."""
    table, query = family(database, "staged")
    driver = query.start()
    driver.run(0)
    loses_commit_of(driver, 1)
    for batch_id in (1, 2, 3):
        driver.run(batch_id)
    driver.close()
    assert database.value(f"SELECT count(*) FROM {table}") == 4
    assert database.leftovers() == NOTHING
    assert caplog.text.count(WARNING) == 1


@pytest.mark.postgres
def test_a_task_whose_rows_refer_to_a_lost_commit(postgres: LocalPostgres) -> None:
    """Where tasks write into the table itself, the attempt is void, and the next one will do:
    nobody has to correct rows.
    """
    with Database.cleaned(postgres) as database:
        table, query = family(database, "prepared")
        driver = query.start()
        loses_commit_of(driver, 0)
        driver.run(0)
        with pytest.raises(EpochAborted, match="committed again now.* start the query again"):
            driver.run(1)
        driver.close()
        query.run(1)
        assert database.value(f"SELECT count(*) FROM {table}") == 2
        assert database.leftovers() == NOTHING


@pytest.mark.postgres
def test_a_task_whose_rows_refer_to_what_is_gone(postgres: LocalPostgres) -> None:
    """A part of the lost commit cannot be had any more: that is told, not that rows are wrong."""
    with Database.cleaned(postgres) as database:
        _, query = family(database, "prepared")
        row = {"id": 100, "name": "of another task", "parent": None}
        query.tasks = lambda batch_id: (
            [*children(0), [pa.RecordBatch.from_pylist([row], schema=children(0)[0][0].schema)]]
            if batch_id == 0
            else children(batch_id)
        )
        driver = query.start()
        loses_commit_of(driver, 0)
        driver.run(0)
        gone = database.prepared()[0]
        database.run(f"ROLLBACK PREPARED '{gone}'")
        with pytest.raises(HeuristicOutcome, match="has gone back to a moment before"):
            driver.run(1)
        driver.close()


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

    verify = driver.participant.verify
    driver.participant.verify = fails  # type: ignore[method-assign, assignment]
    with pytest.raises(Unavailable):
        driver.run(1)
    driver.participant.verify = verify  # type: ignore[method-assign]
    assert driver.coordinator.sweep_own(1) == 0
    driver.close()
    assert database.leftovers() == before
    following = query.start()
    following.run(1)
    following.close()
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
    following = query.start()
    with pytest.raises(HeuristicOutcome, match="has gone back to a moment before that"):
        following.run(1)
    following.close()
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
    following = query.start()
    with pytest.raises(HeuristicOutcome, match="never repeats it, so leave its record"):
        following.run(1)
    following.close()
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
    lives on and writes the next batch there.
    """
    with tempfile.TemporaryDirectory(prefix="exactum-pair-") as name:
        Path(name).chmod(0o755)
        with pair(Path(name)) as servers:
            servers.run("CREATE TABLE t (id bigint, name text)")
            query = Query(lambda: PostgresSink(servers.url, table="t"), "failover")
            driver = query.start()
            commit = driver.participant.commit

            def late(permit, prepared):  # type: ignore[no-untyped-def]
                until(servers.caught_up, "the standby has what is staged")
                servers.standby.kill()
                driver.participant.commit = commit  # type: ignore[method-assign]
                return commit(permit, prepared)

            driver.participant.commit = late  # type: ignore[method-assign]
            driver.run(0)
            servers.primary.kill()
            servers.standby.start()
            servers.promote()
            driver.run(1)
            driver.close()
            rows = servers.run("SELECT id, name FROM t ORDER BY 1", servers.standby)
            assert rows == expected([0, 1])
