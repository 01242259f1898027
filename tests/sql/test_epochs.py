"""Epochs in both kinds of server, by both mechanisms: exactly once through every crash, lost reply,
repeat and second driver.
"""

from __future__ import annotations

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from exactum.errors import ExactumError, Fenced, OutcomeUnknown
from exactum.protocol.model import CommitPermit, Decision, DecisionRecord, Epoch, SourceOffsets
from exactum.protocol.sink import TaskName, WriteOrder
from exactum.sql import retrying_session
from exactum.sql.dialect import ServerFailure, SqlFailure
from exactum.sql.ledger import BATCHES_KEPT, Ledger
from exactum.testing import Crash, FaultPlan, MemoryDecisionLog, sweep
from exactum.testing.memory import permit_of
from tests.kit.every_call import every_call
from tests.kit.sql.losses import Losses, lossy
from tests.kit.sql.sql_database import NOTHING, SqlDatabase
from tests.kit.sql.sql_epochs import Incarnation, Query, expected, narrow, rows_of, tasks_of

MECHANISMS = ("staged", "prepared")
_queries = itertools.count(1)
CALLS_MAX = 10_000


def query_on(database: SqlDatabase, table: str, mechanism: str) -> Query:
    return Query(
        lambda: database.sink(table, mechanism=mechanism),
        f"query-{next(_queries)}",
    )


def rows_in(database: SqlDatabase, table: str) -> list[tuple[int, str]]:
    return sorted(database.rows(f"SELECT id, name FROM {table}"))


def permit(query: Query, batch_id: int) -> tuple[CommitPermit, DecisionRecord]:
    """A permit for the COMMIT that stands for a batch."""
    records = MemoryDecisionLog(query.storage, query.query_id).read(batch_id)
    standing = next(r for r in reversed(records) if r.prepared)
    return permit_of(standing), standing


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_epochs_are_in_the_table_once(database: SqlDatabase, mechanism: str) -> None:
    """Three epochs of three tasks and an empty one: every row once, and nothing left behind."""
    table = database.table()
    driver = query_on(database, table, mechanism).start()
    for batch_id in range(3):
        done = driver.run(batch_id)
        assert (done.written, done.rows) == (True, 12)
    driver.close()
    assert rows_in(database, table) == expected([0, 1, 2])
    assert database.leftovers() == NOTHING


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_nothing_is_visible_before_the_decision(database: SqlDatabase, mechanism: str) -> None:
    """Prepared and verified rows are invisible, and abort removes them."""
    table = database.table()
    driver = query_on(database, table, mechanism).start()
    prepared = driver.write(WriteOrder(driver.run_of, 0, 0, 1))
    driver.participant.verify(prepared)
    assert rows_in(database, table) == []
    driver.participant.abort(driver.participant.list_open())
    driver.close()
    assert rows_in(database, table) == []
    assert database.leftovers() == NOTHING


@pytest.mark.deep
@pytest.mark.sweep
@pytest.mark.parametrize("mechanism", ["staged", pytest.param("prepared", marks=pytest.mark.deep)])
def test_every_fault_at_every_call(database: SqlDatabase, mechanism: str) -> None:
    """Whatever call of two epochs fails, and however: after a restart each row is there exactly
    once.
    """

    def scenario(plan: FaultPlan) -> None:
        table = database.table()
        query = query_on(database, table, mechanism)
        query.tasks = lambda batch_id: [[narrow(rows)] for rows in rows_of(batch_id, tasks=2)]
        driver = query.start(plan)
        driver.write.duplicates = 1
        for batch_id in (0, 1):
            try:
                driver.run(batch_id)
            except (Crash, ExactumError):
                driver.close()
                driver = query.start()
                driver.run(batch_id)
        driver.close()
        assert rows_in(database, table) == expected([0, 1], tasks=2)
        assert database.leftovers() == NOTHING
        database.drop_all()

    assert sweep(scenario) > 100


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_newer_driver_fences_the_older(database: SqlDatabase, mechanism: str) -> None:
    """Two drivers at once: the older, woken after its prepare, is fenced, and its rows are
    nowhere.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    old, new = query.start(), query.start()
    old.run(0)
    prepare = old.write.__call__

    def overtaken(order: WriteOrder) -> object:
        prepared = prepare(order)
        new.run(1)
        return prepared

    with pytest.raises(Fenced):
        old.coordinator.run(1, SourceOffsets(), overtaken)  # type: ignore[arg-type]
    new.run(2)
    for driver in (old, new):
        driver.close()
    assert rows_in(database, table) == expected([0, 1, 2])
    assert database.leftovers() == NOTHING


@pytest.mark.variants(1)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_driver_stopped_while_it_holds_an_epoch(
    database: SqlDatabase, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that stops after verify and never comes back stands in nobody's way for long: its
    session ends.
    """
    database.end_idle_soon(monkeypatch)
    table = database.table()
    query = query_on(database, table, mechanism)
    old = query.start()
    prepared = old.write(WriteOrder(old.run_of, 0, 0, 1))
    old.participant.verify(prepared)
    new = query.start()
    new.run(0)
    new.close()
    assert rows_in(database, table) == expected([0])
    old.close()
    assert database.leftovers() == NOTHING


@pytest.mark.variants(1)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_older_driver_commits_again_days_later(database: SqlDatabase, mechanism: str) -> None:
    """The same commit, sent by another driver after later epochs and after the ledger was
    pruned, changes nothing.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    driver, late = query.start(), query.start()
    batches = range(0, 2 * BATCHES_KEPT + 1, 20)
    for batch_id in batches:
        driver.run(batch_id)
        allowed, record = permit(query, 0)
        report = late.participant.commit(allowed, record.prepared)
        assert len(report.committed) == 3 and not report.expired
    assert database.value("SELECT count(*) FROM exactum_ledger WHERE batch_id = 0") == 0
    for one in (driver, late):
        one.close()
    assert rows_in(database, table) == expected(list(batches))
    assert database.leftovers() == NOTHING


def decided(
    database: SqlDatabase, table: str, mechanism: str
) -> tuple[Query, Incarnation, CommitPermit]:
    """A query whose epoch 0 is decided and not committed."""
    query = query_on(database, table, mechanism)
    driver = query.start()
    die_before_commit(driver, 0)
    return query, driver, permit(query, 0)[0]


def die_before_commit(driver: Incarnation, batch_id: int) -> None:
    """The batch is decided, and not committed."""
    commit = driver.participant.commit

    def dies(*_: object) -> object:
        raise Crash("between decision and commit")

    driver.participant.commit = dies  # type: ignore[method-assign, assignment]
    with pytest.raises(Crash):
        driver.run(batch_id)
    driver.participant.commit = commit  # type: ignore[method-assign]


@pytest.mark.variants(1)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("held", [True, False])
def test_two_threads_commit_at_once(database: SqlDatabase, mechanism: str, held: bool) -> None:
    """The one that holds the epoch and one that does not, or two that do not: both succeed, rows
    are there once.
    """
    table = database.table()
    query, driver, allowed = decided(database, table, mechanism)
    if not held:
        driver.close()
    first = driver if held else query.start()
    others = [query.start() for _ in range(3)]
    with ThreadPoolExecutor(4) as pool:
        reports = list(
            pool.map(
                lambda d: d.participant.commit(allowed, allowed.record.prepared), [*others, first]
            )
        )
    for one in (driver, first, *others):
        one.close()
    assert [len(report.committed) for report in reports] == [3, 3, 3, 3]
    assert rows_in(database, table) == expected([0])
    assert database.leftovers() == NOTHING


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_speculative_copies_are_swept(database: SqlDatabase, mechanism: str) -> None:
    """The copy that lost is prepared too, and is gone after the epoch."""
    table = database.table()
    driver = query_on(database, table, mechanism).start()
    driver.write.duplicates = 3
    driver.run(0)
    driver.close()
    assert rows_in(database, table) == expected([0])
    assert database.leftovers() == NOTHING


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_zombie_task_that_prepares_late_is_swept(database: SqlDatabase, mechanism: str) -> None:
    """A task of a dead incarnation prepares after the next one has started: seen and removed
    with the next epoch.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    dead, driver = query.start(), query.start()
    driver.run(0)
    dead.write.task(WriteOrder(dead.run_of, 0, 0, 1), TaskName(0, 0, 0), tasks_of(0)[0])
    assert [s.incarnation for s in driver.participant.list_open()] == [dead.run_of.incarnation]
    driver.run(1)
    for one in (dead, driver):
        one.close()
    assert rows_in(database, table) == expected([0, 1])
    assert database.leftovers() == NOTHING


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_queries_do_not_see_each_other(database: SqlDatabase, mechanism: str) -> None:
    """Two queries on one table, one's id the beginning of the other's: each lists and sweeps
    only its own.
    """
    table = database.table()
    one = query_on(database, table, mechanism)
    other = Query(one.sink, one.query_id + "-eu")
    first, second = one.start(), other.start()
    prepared = second.write(WriteOrder(second.run_of, 0, 0, 1))
    assert list(first.participant.list_open()) == []
    first.run(0)
    assert sorted(s.identity for s in second.participant.list_open()) == sorted(
        p.identity for p in prepared
    )
    second.participant.verify(prepared)
    second.participant.abort(second.participant.list_open())
    for driver in (first, second):
        driver.close()
    assert rows_in(database, table) == expected([0])


@pytest.mark.kills_server
@pytest.mark.variants(1)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_server_is_killed_between_decision_and_commit(
    database: SqlDatabase, mechanism: str
) -> None:
    """SIGKILL of the whole server after the decision: the same driver, or the next one, commits
    after the restart.
    """
    table = database.table()
    query, driver, allowed = decided(database, table, mechanism)
    database.server.kill()
    database.server.start()
    assert rows_in(database, table) == []
    report = driver.participant.commit(allowed, allowed.record.prepared)
    assert len(report.committed) == 3
    driver.close()
    following = query.start()
    assert not following.run(0).written
    following.run(1)
    following.close()
    assert rows_in(database, table) == expected([0, 1])
    assert database.leftovers() == NOTHING


@pytest.mark.kills_server
@pytest.mark.deep
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_server_is_killed_while_tasks_write(database: SqlDatabase, mechanism: str) -> None:
    """SIGKILL after some tasks have prepared: the attempt is void, and a restart of the query is
    exact.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    driver = query.start()

    def write(order: WriteOrder) -> object:
        driver.write.task(order, TaskName(0, 0, 0), tasks_of(0)[0])
        writer = driver.opened.writers.open(order, TaskName(1, 0, 0))
        writer.write(narrow([(1, "lost")]))
        database.server.kill()
        database.server.start()
        try:
            return [writer.prepare()]
        finally:
            writer.abort()

    with pytest.raises(ExactumError, match="start the query again"):
        driver.coordinator.run(0, SourceOffsets(), write)  # type: ignore[arg-type]
    driver.close()
    following = query.start()
    following.run(0)
    following.close()
    assert rows_in(database, table) == expected([0])
    assert database.leftovers() == NOTHING


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sessions_are_terminated_before_the_commit(database: SqlDatabase, mechanism: str) -> None:
    """An administrator ends every session between decision and commit: the driver connects again
    and commits.
    """
    table = database.table()
    driver = query_on(database, table, mechanism).start()
    commit = driver.participant.commit

    def terminated(allowed: CommitPermit, prepared: object) -> object:
        database.end_sessions()
        return commit(allowed, prepared)  # type: ignore[arg-type]

    driver.participant.commit = terminated  # type: ignore[method-assign, assignment]
    for batch_id in range(2):
        driver.run(batch_id)
    driver.close()
    assert rows_in(database, table) == expected([0, 1])
    assert database.leftovers() == NOTHING


@pytest.mark.parametrize("before", MECHANISMS)
def test_the_mechanism_is_changed_over_a_decided_epoch(database: SqlDatabase, before: str) -> None:
    """An epoch that one mechanism prepared is finished by a driver that is set to the other one."""
    table = database.table()
    query, driver, _ = decided(database, table, before)
    driver.close()
    after = MECHANISMS[1 - MECHANISMS.index(before)]
    query.sink = lambda: database.sink(table, mechanism=after)
    following = query.start()
    assert not following.run(0).written
    following.run(1)
    following.close()
    assert rows_in(database, table) == expected([0, 1])
    assert database.leftovers() == NOTHING


@pytest.mark.deep
@pytest.mark.sweep
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("lost", ["request", "reply"])
def test_the_connection_is_lost_at_every_statement(
    database: SqlDatabase, mechanism: str, lost: str
) -> None:
    """Whichever statement of a driver is lost, or its reply (a COMMIT's, too): the epoch goes
    on, and is exact.
    """
    for at in every_call(CALLS_MAX):
        table = database.table()
        losses = Losses(at, lost)
        sink = database.sink(table, mechanism=mechanism)
        query = Query(lambda sink=sink: sink, f"query-{next(_queries)}")  # type: ignore[misc]
        query.tasks = lambda batch_id: [[narrow(rows)] for rows in rows_of(batch_id, tasks=2)]
        driver = query.start()
        lossy(driver, losses)
        for batch_id in (0, 1):
            driver.run(batch_id)
        driver.close()
        assert rows_in(database, table) == expected([0, 1], tasks=2), losses
        assert database.leftovers() == NOTHING, losses
        database.drop_all()
        if losses.calls < at:
            break
    assert at > 15


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sessions_end_again_and_again_during_commits(database: SqlDatabase, mechanism: str) -> None:
    """An administrator ends sessions all along while an epoch is committed: it stands once."""
    table = database.table()
    query = query_on(database, table, mechanism)
    driver = query.start()
    pauses = random.Random(7)
    for batch_id in range(3):
        prepared = tuple(driver.write(WriteOrder(driver.run_of, batch_id, 0, batch_id + 1)))
        driver.participant.verify(prepared)
        record = DecisionRecord(
            Epoch(query.query_id, batch_id),
            1,
            Decision.COMMIT,
            driver.run_of.incarnation,
            prepared,
        )
        report = None
        stop = threading.Event()
        ending = threading.Thread(target=end_sessions, args=(database, pauses, stop))
        ending.start()
        try:
            for _ in range(200):
                try:
                    report = driver.participant.commit(permit_of(record), prepared)
                    break
                except OutcomeUnknown:
                    continue
        finally:
            stop.set()
            ending.join()
        assert report is not None
        assert set(report.committed) == set(prepared)
    driver.close()
    assert rows_in(database, table) == expected(range(3))
    assert database.leftovers() == NOTHING


def end_sessions(database: SqlDatabase, pauses: random.Random, stop: threading.Event) -> None:
    """Most pauses are shorter than a commit; some are long enough for one on a busy machine."""
    while not stop.wait(pauses.choice([0.002, 0.004, 0.004, 0.02, 0.2])):
        database.end_sessions()


def test_a_server_that_is_lost_after_the_commit(
    database: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old rows of the ledger cannot be removed: the driver says that the epoch is decided, and the
    next one finds it whole.
    """

    def lost(*_: object) -> None:
        raise SqlFailure(ServerFailure.LOST, "", "the server went away")

    table = database.table()
    query, driver, allowed = decided(database, table, "prepared")
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "prune", lost)
        patched.setattr(retrying_session, "TIMEOUT_S", 0.2)
        with pytest.raises(OutcomeUnknown, match="is decided"):
            driver.participant.commit(allowed, allowed.record.prepared)
    assert rows_in(database, table) == expected([0])
    driver.close()
    following = query.start()
    assert not following.run(0).written
    following.close()
    assert rows_in(database, table) == expected([0])
    assert database.leftovers() == NOTHING


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_commit_and_abort_may_be_repeated(database: SqlDatabase, mechanism: str) -> None:
    """Both may be sent again and again, and change nothing more."""
    table = database.table()
    query = query_on(database, table, mechanism)
    driver = query.start()
    driver.run(0)
    allowed, record = permit(query, 0)
    for _ in range(3):
        again = driver.participant.commit(allowed, record.prepared)
        assert set(again.committed) == set(record.prepared)
    driver.write(WriteOrder(driver.run_of, 1, 0, 2))
    seen = driver.participant.list_open()
    assert {s.incarnation for s in seen} == {driver.run_of.incarnation}
    for _ in range(3):
        driver.participant.abort(seen)
    assert list(driver.participant.list_open()) == []
    driver.close()
    assert rows_in(database, table) == expected([0])
    assert database.leftovers() == NOTHING


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_names_are_matched_exactly(database: SqlDatabase, mechanism: str) -> None:
    """Neither another participant nor another query, however alike its name, sees what is open."""
    table = database.table()
    query = query_on(database, table, mechanism)
    driver = query.start()
    driver.write(WriteOrder(driver.run_of, 0, 0, 1))
    name = query.sink().name
    for alike in (
        replace(query, query_id=query.query_id + "-2"),
        replace(query, query_id=query.query_id.upper()),
        replace(query, query_id=query.query_id[:-1]),
        replace(query, participant=name + " "),
        replace(query, participant=name.upper()),
    ):
        other = alike.start()
        assert list(other.participant.list_open()) == []
        other.close()
    assert len(driver.participant.list_open()) == 3
    driver.participant.abort(driver.participant.list_open())
    driver.close()
    assert database.leftovers() == NOTHING


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_leftovers_of_dead_tasks_are_swept(database: SqlDatabase, mechanism: str) -> None:
    """What a dead incarnation's tasks had prepared, and nobody decided, is aborted by the next
    start.
    """
    table = database.table()
    query = query_on(database, table, mechanism)
    dead = query.start()
    dead.write(WriteOrder(dead.run_of, 0, 0, 1))
    dead.close()
    assert database.leftovers() != NOTHING
    following = query.start()
    following.run(0)
    following.close()
    assert rows_in(database, table) == expected([0])
    assert database.leftovers() == NOTHING


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_another_column_and_mechanism_over_a_decided_epoch(
    database: SqlDatabase, mechanism: str
) -> None:
    """The decided epoch is finished as it was written, and the old staging table goes."""
    table = database.table("id bigint, name text, more bigint")
    query, driver, _ = decided(database, table, mechanism)
    driver.close()
    other = MECHANISMS[1 - MECHANISMS.index(mechanism)]
    changed = replace(
        query,
        sink=lambda: database.sink(table, mechanism=other),
        columns=(*query.columns, ("more", "bigint")),
        tasks=lambda _: [[pa.record_batch({"id": [9000], "name": ["new"], "more": [4]})]],
    )
    new = changed.start()
    assert not new.run(0).written
    new.run(1)
    new.close()
    assert sorted(database.rows(f"SELECT id, more FROM {table}"), key=lambda row: row[0]) == [
        *((id_, None) for id_, _ in expected([0])),
        (9000, 4),
    ]
    assert database.leftovers() == NOTHING
    changed.start().close()
    assert len(database.staging()) == (1 if other == "staged" else 0)
