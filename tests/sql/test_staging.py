"""Rows wait in files until their epoch is decided: what becomes of a file, of its driver and of the
sink's settings meanwhile, the table has each row once, or an error says which are missing.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import HeuristicOutcome, OutcomeUnknown
from exactum.protocol.model import PreparedTransaction, SourceOffsets
from exactum.protocol.sink import Guarantee, TaskName, WriteOrder
from exactum.sql import session as retrying_session
from exactum.testing import Crash
from tests.kit.errors import raised
from tests.kit.sql.losses import Losses, lossy
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import expected, narrow, tasks_of
from tests.sql.test_epochs import decided, rows_in

DUPLICATE = {"postgres": "(23505)", "mysql": "(1062)"}

# ---- tasks -----------------------------------------------------------------------------------


@pytest.mark.kills_server
def test_a_task_needs_no_server(database: SqlDatabase) -> None:
    """It is down while tasks write, and up again for the decision."""
    table = database.table()
    query = database.query(table)
    driver = query.start()

    def write(order: WriteOrder) -> object:
        database.server.kill()
        try:
            return driver.write(order)
        finally:
            database.server.start()

    driver.coordinator.run(0, SourceOffsets(), write)  # type: ignore[arg-type]
    driver.close()
    assert rows_in(database, table) == expected([0])


def test_a_file_is_its_users_alone(database: SqlDatabase) -> None:
    query, driver, _ = decided(database, database.table())
    driver.close()
    assert [file.stat().st_mode & 0o777 for file in query.staged()] == [0o600] * 3


# ---- settings that are changed meanwhile -----------------------------------------------------


def test_another_column_and_mode_over_a_decided_epoch(database: SqlDatabase) -> None:
    """It is finished as its files say it was written."""
    table = database.table("id bigint PRIMARY KEY, name text, more bigint")
    query, driver, _ = decided(database, table)
    driver.close()
    changed = replace(
        query,
        sink=lambda: database.sink(table, mode="upsert", key="id"),
        columns=(*query.columns, ("more", "bigint")),
        tasks=lambda _: [
            [pa.record_batch({"id": [0, 9000], "name": ["new"] * 2, "more": [4] * 2})]
        ],
    )
    changed.run(0)
    assert rows_in(database, table) == expected([0])
    changed.run(1)
    rows = sorted(database.rows(f"SELECT id, name, more FROM {table}"), key=lambda row: row[0])
    assert rows == [(0, "new", 4), *((*row, None) for row in expected([0])[1:]), (9000, "new", 4)]
    assert query.staged() == []


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_tasks_that_wrote_for_different_settings(database: SqlDatabase, mode: str) -> None:
    """Two loads with different headers in one epoch: each file goes as it says, all or none."""
    table = database.table("id bigint PRIMARY KEY, name text, more bigint")
    key = "id" if mode == "upsert" else None
    query = database.query(table, mode=mode, key=key)
    driver = query.start()
    other = replace(
        query,
        columns=(("id", "bigint"), ("more", "bigint")),
        sink=lambda: database.sink(table, mode="upsert", key="id"),
    ).start()

    def write(order: WriteOrder) -> list[PreparedTransaction]:
        done = [driver.task(order, TaskName(n, 0, 0), tasks_of(0)[n]) for n in (0, 2)]
        more = pa.record_batch({"id": [0, 5], "more": [7, 8]})
        done.insert(1, other.task(order, TaskName(1, 0, 0), [more]))
        return [p for p in done if p is not None]

    driver.coordinator.run(0, SourceOffsets(), write)
    for one in (driver, other):
        one.close()
    rows = sorted(database.rows(f"SELECT id, name, more FROM {table}"), key=lambda row: row[0])
    first, third = expected([0])[:4], expected([0])[8:]
    assert rows == [
        (0, first[0][1], 7),
        *((*row, None) for row in first[1:]),
        (5, None, 8),
        *((*row, None) for row in third),
    ]


def test_another_schema_over_an_epoch_whose_commit_is_done(
    database: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply was lost, and the sink has moved to another schema, with a ledger of its own: the
    rows are not loaded again where they are.
    """
    table = database.table()
    query = database.query(table)
    driver = query.start()
    commit = driver.participant.commit

    def dies_after(*given: Any) -> object:
        commit(*given)
        raise Crash("after the COMMIT")

    monkeypatch.setattr(driver.participant, "commit", dies_after)
    with pytest.raises(Crash):
        driver.run(0)
    driver.close()
    assert rows_in(database, table) == expected([0])
    other = f"other_{os.getpid()}"
    database.run(f"CREATE SCHEMA {other}")
    try:
        database.run(f"CREATE TABLE {other}.{table} (id bigint, name text)")
        query.participant = query.sink().name
        query.sink = lambda: database.sink(f"{other}.{table}")
        query.run(0)
        assert rows_in(database, table) == expected([0])
        assert rows_in(database, f"{other}.{table}") == []
        query.run(1)
        assert rows_in(database, f"{other}.{table}") == expected([1])
    finally:
        database.run(f"DROP TABLE {other}.{table}")
        database.run(f"DROP TABLE {other}.exactum_ledger")
        database.run(f"DROP SCHEMA {other}")


# ---- drivers ---------------------------------------------------------------------------------


@pytest.mark.variants(1)
def test_a_driver_that_is_frozen_while_it_holds(
    database: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor commits the epoch that it has decided from the files, once its locks end; woken,
    it finds the epoch done and changes nothing.
    """
    database.end_idle_soon(monkeypatch)
    table = database.table("id bigint PRIMARY KEY, name text")
    query, frozen, allowed = decided(database, table)
    query.run(0, 1)
    assert rows_in(database, table) == expected([0, 1])
    report = frozen.participant.commit(allowed, allowed.record.prepared)
    assert len(report.committed) == 3
    frozen.close()
    assert rows_in(database, table) == expected([0, 1])
    assert query.staged() == []


def test_what_is_held_is_of_the_files_that_are_decided(database: SqlDatabase) -> None:
    """A transaction that holds another set of files is undone, not committed."""
    table = database.table()
    _, driver, allowed = decided(database, table)
    more = driver.task(driver.order(0, 7), TaskName(9, 0, 0), [narrow([(1, "stray")])])
    assert more is not None
    driver.participant.verify([more])
    driver.participant.commit(allowed, allowed.record.prepared)
    driver.close()
    assert rows_in(database, table) == expected([0])


# ---- the weaker guarantees -------------------------------------------------------------------


def test_a_delivery_whose_commit_is_not_answered(
    database: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not tried again: at most once is at most once."""
    monkeypatch.setattr(retrying_session, "TIMEOUT_S", 5.0)
    table = database.table()
    query = replace(database.query(table), guarantee=Guarantee.AT_MOST_ONCE)
    driver = query.start()
    prepared = driver.write(driver.order(0))
    losses = Losses(0, "reply", label="commit")
    lossy(driver, losses)
    with raised(OutcomeUnknown, ": batch 0 "):
        driver.participant.deliver(prepared)  # type: ignore[attr-defined]
    driver.close()
    assert losses.struck == "commit"
    assert rows_in(database, table) == expected([0])


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_a_commit_whose_reply_is_lost(database: SqlDatabase, lost: str) -> None:
    """The ledger says what became of it: the rows are there once."""
    table = database.table()
    query = database.query(table)
    driver = query.start()
    losses = Losses(0, lost, label="commit")
    lossy(driver, losses)
    driver.run(0)
    driver.close()
    assert losses.struck == "commit"
    assert rows_in(database, table) == expected([0])
    assert query.staged() == []


def test_the_table_refuses_after_the_decision(database: SqlDatabase) -> None:
    """A row that somebody wrote between decision and redelivery stops the query; without it, it
    goes on, exactly.
    """
    table = database.table("id bigint PRIMARY KEY, name text")
    query, driver, _ = decided(database, table)
    driver.close()
    database.run(f"INSERT INTO {table} VALUES (101, 'an intruder')")
    with raised(HeuristicOutcome, "TARGET_REFUSES", DUPLICATE[database.dialect.scheme]):
        query.run(0)
    database.run(f"DELETE FROM {table} WHERE id = 101")
    last = query.start()
    assert not last.run(0).written
    last.close()
    assert rows_in(database, table) == expected([0])
    assert query.staged() == []
