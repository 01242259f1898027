"""A database that is older than the decision log: refused at the start, and nothing else that only
looks like it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from exactum.checkpoint.known_sinks import IN_CHECKPOINT, KnownSink
from exactum.errors import CheckpointRefused
from exactum.files.decision_log import FileDecisionLog
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import SourceOffsets
from exactum.protocol.sink import TaskName, WriteOrder
from exactum.spark.run.copied_target import refuse_copied_target
from tests.kit.spark.run_begin import note, run_at
from tests.kit.sql.sql_database import NOTHING, SqlDatabase
from tests.kit.sql.sql_epochs import Query, expected, tasks_of
from tests.sql.test_epochs import MECHANISMS, die_before_commit, query_on, rows_in

both = pytest.mark.parametrize("mechanism", MECHANISMS)


def restored(database: SqlDatabase, table: str, last: int) -> None:
    """As it was after batch ``last``."""
    database.run("DELETE FROM exactum_ledger WHERE batch_id > %s", [last])
    database.run(f"DELETE FROM {table} WHERE id >= %s", [1000 * (last + 1)])


@both
def test_an_older_copy_is_refused_until_somebody_says_otherwise(
    database: SqlDatabase, mechanism: str
) -> None:
    """As often as it is tried; and the error's own words are the way out."""
    table = database.table()
    query = query_on(database, table, mechanism)
    query.run(0, 1, 2)
    restored(database, table, 0)
    for _ in range(2):
        with pytest.raises(
            CheckpointRefused, match="have batch 2 as done.* ends with batch 0"
        ) as e:
            query.run(3)
    assert rows_in(database, table) == expected([0])
    assert database.leftovers() == NOTHING
    database.run(str(e.value).partition("then ")[2].partition(";")[0].replace("%", "%%"))
    query.run(3)
    query.run(4)
    assert rows_in(database, table) == expected([0, 3, 4])


@pytest.mark.deep
@both
def test_a_copy_that_lacks_more_than_the_records_tell(
    database: SqlDatabase, mechanism: str
) -> None:
    """Ten batches are gone."""
    table = database.table()
    query = query_on(database, table, mechanism)
    query.run(*range(12))
    restored(database, table, 1)
    with pytest.raises(CheckpointRefused, match="have batch 11 as done.* ends with batch 1"):
        query.run(12)


@pytest.mark.variants(3)
@both
@pytest.mark.parametrize("waits", ["nothing", "another part"])
def test_a_living_run_stops_before_it_writes_on(
    database: SqlDatabase, mechanism: str, waits: str
) -> None:
    """The server fails over under it, and holds nothing of the last commit that waits. A part of a
    speculative task, or of a batch long ago, is no reason to go on.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    driver = query.start()
    for batch_id in range(3):
        driver.run(batch_id)
    restored(database, table, 1)
    if waits == "another part":
        driver.write.task(WriteOrder(driver.run_of, 2, 0, 9), TaskName(0, 1, 0), tasks_of(2)[0])
    with pytest.raises(CheckpointRefused, match="have batch 2 as done.* ends with batch 1"):
        driver.run(3)
    driver.close()
    assert rows_in(database, table) == expected([0, 1])
    assert database.leftovers() == NOTHING


@both
def test_a_living_run_of_which_the_ledger_knows_nothing(
    database: SqlDatabase, mechanism: str
) -> None:
    """A new query's first batches are lost in a failover. The next start takes it for emptied on
    purpose, as the error says.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    driver = query.start()
    driver.run(0)
    restored(database, table, -1)
    with pytest.raises(
        CheckpointRefused, match="have batch 0 as done.* has none of this query.*then start again"
    ):
        driver.run(1)
    driver.close()
    assert rows_in(database, table) == []
    assert database.leftovers() == NOTHING
    query.run(1)
    assert rows_in(database, table) == expected([1])


@both
def test_a_batch_that_a_start_commits_elsewhere(database: SqlDatabase, mechanism: str) -> None:
    """The sink was moved to another schema, where its last batch is decided, and is moved back: the
    ledger here has an older end, and no loss.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    here, query.participant = query.sink, "moved"
    query.run(0)
    database.run("CREATE SCHEMA exactum_elsewhere")
    try:
        database.run("CREATE TABLE exactum_elsewhere.t (id bigint, name varchar(50))")
        query.sink = lambda: database.sink("exactum_elsewhere.t", mechanism=mechanism)
        driver = query.start()
        driver.run(1)
        die_before_commit(driver, 2)
        driver.close()
        query.sink = here
        query.run(2, 3)
        assert rows_in(database, table) == expected([0, 3])
        assert rows_in(database, "exactum_elsewhere.t") == expected([1, 2])
    finally:
        cascade = " CASCADE" if database.dialect.scheme == "postgres" else ""
        database.run(f"DROP SCHEMA exactum_elsewhere{cascade}")


@pytest.mark.variants(2)
@both
def test_batches_without_rows_leave_no_trace(database: SqlDatabase, mechanism: str) -> None:
    """The last batch with rows counts; where it is too far back, nothing is asked."""
    table = database.table()
    query = query_on(database, table, mechanism)
    query.tasks = lambda batch_id: tasks_of(batch_id) if batch_id in (0, 8) else [[]]
    for batch_id in range(10):
        query.run(batch_id)
    assert rows_in(database, table) == expected([0, 8])


@both
def test_a_ledger_that_was_emptied_is_none_that_went_back(
    database: SqlDatabase, mechanism: str
) -> None:
    """To write batches again on purpose, by docs/guarantees.md; or another database of that name."""
    table = database.table()
    query = query_on(database, table, mechanism)
    query.run(0, 1)
    database.run("DELETE FROM exactum_ledger")
    query.run(2)
    assert rows_in(database, table) == expected([0, 1, 2])


def as_of(query: Query, elsewhere: str, *batches: int) -> None:
    """These batches were written to another server, or by another user, as their records say."""
    for slot, record in query.storage.records.items():
        if record.epoch.batch_id in batches:
            its = tuple(
                replace(p, payload=json.dumps({**json.loads(p.payload), "at": elsewhere}))
                for p in record.prepared
            )
            query.storage.records[slot] = replace(record, prepared=its)


@both
def test_a_sink_that_was_moved_away_and_back(database: SqlDatabase, mechanism: str) -> None:
    """Its table here has the ledger of that time: the batches since were written elsewhere."""
    table = database.table()
    query = query_on(database, table, mechanism)
    query.run(0, 1, 2)
    restored(database, table, 0)
    as_of(query, "postgresql://elsewhere:5432/shop", 1, 2)
    query.run(3)
    assert rows_in(database, table) == expected([0, 3])


@both
def test_a_standby_by_another_name(database: SqlDatabase, mechanism: str) -> None:
    """The URL was changed in the failover. What its ledger ends with was committed at the primary,
    so it is a copy; one that lacks nothing is taken.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    query.run(0, 1, 2)
    as_of(query, "postgresql://shop@primary:5432/shop", 0, 1, 2)
    query.run(3)
    restored(database, table, 1)
    as_of(query, "postgresql://shop@primary:5432/shop", 3)
    said = "batch 3 as done.* written at postgresql://primary:5432/shop, ends with batch 1"
    for _ in range(2):
        with pytest.raises(CheckpointRefused, match=said) as e:
            query.run(4)
    assert rows_in(database, table) == expected([0, 1])
    assert database.leftovers() == NOTHING
    database.run(str(e.value).partition("then ")[2].partition(";")[0].replace("%", "%%"))
    query.run(4)
    assert rows_in(database, table) == expected([0, 1, 4])


@both
def test_another_ledger_of_that_name(database: SqlDatabase, mechanism: str) -> None:
    """Two queries on copies of one checkpoint, or a test's database: not a copy of the one that the
    records name.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    query.run(0, 1, 2)
    restored(database, table, 0)
    database.run("UPDATE exactum_ledger SET identity = replace(identity, '_', '-'), digest = 'x'")
    as_of(query, "postgresql://shop@primary:5432/shop", 0, 1, 2)
    query.run(3)
    assert rows_in(database, table) == expected([0, 3])


@both
@pytest.mark.parametrize("change", ["user", "table"])
def test_the_same_ledger_by_another_way(database: SqlDatabase, mechanism: str, change: str) -> None:
    """Another user name, as where credentials rotate, or another table of the same schema."""
    table = database.table()
    query = query_on(database, table, mechanism)
    query.participant = "kept"
    query.run(0, 1, 2)
    restored(database, table, 1)
    if change == "user":
        as_of(query, database.address.where.replace("://exactum@", "://shop-7@"), 0, 1, 2)
    else:
        other = database.table()
        query.sink = lambda: database.sink(other, mechanism=mechanism)
    with pytest.raises(CheckpointRefused, match=f"2 as done.*{table}, .*ends with batch 1"):
        query.run(3)
    assert rows_in(database, table) == expected([0, 1])


@both
def test_a_log_that_begins_behind_the_ledgers_end(
    database: SqlDatabase, mechanism: str, tmp_path: Path
) -> None:
    """The decision log was changed while the sink was elsewhere. The sink is moved back: of its
    ledger's last batch the log has no record, and that is no damage.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    query.run(0, 1, 2)
    restored(database, table, 0)
    as_of(query, "postgresql://elsewhere:5432/shop", 1, 2)
    log = log_of(query, tmp_path, 1, 2)
    driver = query.start()
    coordinator = Coordinator(driver.run_of, [driver.participant], log)
    coordinator.run(3, SourceOffsets(), driver.write)
    driver.close()
    assert rows_in(database, table) == expected([0, 3])


def log_of(query: Query, folder: Path, *batches: int) -> FileDecisionLog:
    """A real log with the query's records of these batches alone."""
    log = FileDecisionLog(folder / "log", query.query_id)
    for _, record in sorted(query.storage.records.items()):
        if record.epoch.batch_id in batches:
            assert log.decide(record) == record
    return log


@pytest.mark.variants(3)
@both
@pytest.mark.parametrize("kept", [(3, 4), (2, 3, 4), (1, 2, 3, 4)])
def test_a_snapshot_by_another_name(
    database: SqlDatabase, mechanism: str, tmp_path: Path, kept: tuple[int, ...]
) -> None:
    """A managed database is always restored under a new name. It is older than the records that
    are kept. Refused at each start until somebody says otherwise, as the error says; where the log
    has what the ledger ends with, that tells.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    query.run(*range(5))
    restored(database, table, 1)
    as_of(query, "postgresql://shop@primary:5432/shop", *range(5))
    log = log_of(query, tmp_path, *kept)
    if 1 in kept:
        start_by_another_name(query, tmp_path, log)
        return
    for _ in range(2):
        with pytest.raises(
            CheckpointRefused, match="batch 4 was written at .*ends with batch 1,"
        ) as e:
            start_by_another_name(query, tmp_path, log)
    database.run(str(e.value).partition("purpose: ")[2].partition(";")[0].replace("%", "%%"))
    start_by_another_name(query, tmp_path, log)


@both
def test_a_place_that_is_on_file(database: SqlDatabase, mechanism: str, tmp_path: Path) -> None:
    """A sink that the query had here before, and that is given again: its ledger is old."""
    table = database.table()
    query = query_on(database, table, mechanism)
    query.run(*range(5))
    restored(database, table, 1)
    as_of(query, "postgresql://shop@primary:5432/shop", *range(2, 5))
    log = log_of(query, tmp_path, 3, 4)
    driver = query.start()
    here = KnownSink(driver.participant.name, dict(driver.opened.trace))
    driver.close()
    note(tmp_path, query.query_id, IN_CHECKPOINT, 4, here)
    start_by_another_name(query, tmp_path, log)


@pytest.mark.variants(3)
@both
def test_places_that_tell_nothing(database: SqlDatabase, mechanism: str, tmp_path: Path) -> None:
    """By another name, and up to date; by the name that the records have; a new ledger; a log
    without records.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    query.run(*range(5))
    empty = FileDecisionLog(tmp_path / "empty", query.query_id)
    start_by_another_name(query, tmp_path, log_of(query, tmp_path / "same", 3, 4))
    start_by_another_name(query, tmp_path, empty)
    as_of(query, "postgresql://shop@primary:5432/shop", *range(5))
    log = log_of(query, tmp_path, 3, 4)
    start_by_another_name(query, tmp_path, log)
    restored(database, table, -1)
    start_by_another_name(query, tmp_path, log)


def start_by_another_name(query: Query, checkpoint: Path, log: FileDecisionLog) -> None:
    """As ``opening`` asks, with batch 5 at hand."""
    driver = query.start()
    try:
        sinks = [(driver.participant.name, driver.opened)]
        refuse_copied_target(run_at(checkpoint, query.query_id, 5), log, sinks)
    finally:
        driver.close()


def test_a_sink_that_was_another_kind_of_sink(database: SqlDatabase) -> None:
    """What the records name was never in a database."""
    table = database.table()
    query = query_on(database, table, "staged")
    query.run(0, 1)
    restored(database, table, 0)
    for slot, record in query.storage.records.items():
        its = tuple(replace(p, payload='{"topic": "orders"}') for p in record.prepared)
        query.storage.records[slot] = replace(record, prepared=its)
    query.run(2)
    assert rows_in(database, table) == expected([0, 2])
