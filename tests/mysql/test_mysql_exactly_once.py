"""Both mechanisms under every fault, with the real coordinator and a real server."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import (
    CheckpointRefused,
    EpochAborted,
    ExactumError,
    Fenced,
    HeuristicOutcome,
    OutcomeUnknown,
)
from exactum.protocol.model import Decision, DecisionRecord, Epoch
from exactum.sql.mysql import session as mysql_session
from exactum.sql.mysql.sink import MySQLSink
from exactum.testing import Crash, Fault, FaultPlan, sweep
from exactum.testing.memory import permit_of
from tests.kit.mysql.mysql_database import Database
from tests.kit.mysql.mysql_query import Query, numbers

pytestmark = pytest.mark.parametrize("mechanism", ["staged", "prepared"])


def numbers_query(database: Database, mechanism: str) -> Query:
    database.run("CREATE TABLE IF NOT EXISTS t (v bigint NOT NULL)")
    return Query(lambda: MySQLSink(database.url, table="t", mechanism=mechanism))


def decided(query: Query, batch_id: int) -> DecisionRecord:
    """The COMMIT on record."""
    return next(
        r
        for r in query.storage.records.values()
        if r.epoch.batch_id == batch_id and r.decision is Decision.COMMIT
    )


class StallsAtCommit(FaultPlan):
    """The decision stands, and the driver stops before it carries it out."""

    def __init__(self) -> None:
        super().__init__(Fault.CRASH_BEFORE, 0)

    def around(self, label: str, call: Callable[[], object]) -> object:
        if label == "commit":
            raise Crash("stopped before commit")
        return call()


def clean(database: Database) -> bool:
    return database.staged() == 0 and database.xids() == []


def test_epochs_stand_once(database: Database, mechanism: str) -> None:
    """Several tasks, one without rows, a speculative copy: each row once, nothing left."""
    query = numbers_query(database, mechanism)
    one = query.started()
    assert one.epoch(0, numbers(1, 2), numbers(), [numbers(3), numbers(4)], losers=1).rows == 4
    assert one.epoch(1, numbers(5)).rows == 1
    assert one.epoch(2).rows == 0
    assert database.values("t") == [1, 2, 3, 4, 5]
    assert clean(database)
    one.die()


def test_sweep_of_every_fault(database: Database, mechanism: str) -> None:
    """Crash, lost reply, repeated call at every call of the ports: the next incarnation makes it
    exact.
    """
    database.run("CREATE TABLE t (v bigint NOT NULL)")

    runs = itertools.count()

    def scenario(plan: FaultPlan) -> None:
        database.run("DELETE FROM t")
        query = replace(numbers_query(database, mechanism), query_id=f"sweep-{next(runs)}")
        struck = query.started(plan)
        try:
            struck.epoch(0, numbers(1), numbers(2), losers=2)
            struck.epoch(1, numbers(3))
        except (Crash, ExactumError):
            pass
        struck.die()
        after = query.started()
        after.epoch(0, numbers(1), numbers(2))
        after.epoch(1, numbers(3))
        after.epoch(2, numbers(4))
        after.die()
        assert database.values("t") == [1, 2, 3, 4]
        assert clean(database)

    print(sweep(scenario), "runs")


def test_two_incarnations(database: Database, mechanism: str) -> None:
    """A newer incarnation fences the running one; what that had written is gone, and nothing is
    doubled.
    """
    query = numbers_query(database, mechanism)
    old, new = query.started(), query.started()
    old.epoch(0, numbers(1))
    new.epoch(1, numbers(2))
    with pytest.raises(Fenced):
        old.epoch(1, numbers(2))
    new.epoch(2, numbers(3))
    assert database.values("t") == [1, 2, 3]
    assert clean(database)
    old.die()
    new.die()


def test_late_commit_of_an_older_driver(database: Database, mechanism: str) -> None:
    """A driver that decided and stalled commits after its successor has gone on for long:
    nothing changes.
    """
    query = numbers_query(database, mechanism)
    old = query.started(StallsAtCommit())
    with pytest.raises(Crash):
        old.epoch(0, numbers(1), numbers(2))
    held = mechanism == "staged"
    if held:
        old.die()  # the server ends the transaction of a stalled driver: see the test of that
    new = query.started()
    for batch_id in range(130):
        tasks = [numbers(1), numbers(2)] if batch_id == 0 else [numbers(batch_id + 2)]
        new.epoch(batch_id, *tasks)
    expected = [1, 2, *range(3, 132)]
    assert database.values("t") == expected
    record = decided(query, 0)
    report = old.participant.commit(permit_of(record), record.prepared)
    assert report.committed == record.prepared
    assert database.values("t") == expected
    assert database.run("SELECT COUNT(*) FROM exactum_ledger WHERE batch_id = 0")[0][0] == 0, (
        "pruned"
    )
    assert clean(database)
    old.die()
    new.die()


def test_a_stalled_driver_lets_go(
    database: Database, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that stops after its decision keeps no locks: the server ends its transaction, a
    successor commits.
    """
    monkeypatch.setattr(mysql_session, "IDLE_TRANSACTION_TIMEOUT_S", 2)
    query = numbers_query(database, mechanism)
    old = query.started(StallsAtCommit())
    with pytest.raises(Crash):
        old.epoch(0, numbers(1))
    new = query.started()
    assert not new.epoch(0, numbers(1)).written
    new.epoch(1, numbers(2))
    record = decided(query, 0)
    assert old.participant.commit(permit_of(record), record.prepared).committed == record.prepared
    assert database.values("t") == [1, 2]
    assert clean(database)
    old.die()
    new.die()


def test_drivers_that_commit_at_once(database: Database, mechanism: str) -> None:
    """Four drivers send one commit at the same time: all succeed, the rows stand once."""
    query = numbers_query(database, mechanism)
    old = query.started(StallsAtCommit())
    with pytest.raises(Crash):
        old.epoch(0, *(numbers(n) for n in range(8)))
    old.die()
    record = decided(query, 0)
    drivers = [query.started() for _ in range(4)]
    gate = threading.Barrier(len(drivers))
    found: list[Any] = []

    def commit(driver: Any) -> None:
        gate.wait()
        try:
            found.append(driver.participant.commit(permit_of(record), record.prepared).committed)
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=commit, args=(d,)) for d in drivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [set(f) if isinstance(f, tuple) else f for f in found] == [set(record.prepared)] * 4
    assert database.values("t") == list(range(8))
    assert clean(database)
    for driver in drivers:
        driver.die()


def test_repeated_commit_and_abort(database: Database, mechanism: str) -> None:
    """A commit and an abort may be sent again and again."""
    query = numbers_query(database, mechanism)
    one = query.started()
    one.epoch(0, numbers(1))
    record = decided(query, 0)
    for _ in range(3):
        assert (
            one.participant.commit(permit_of(record), record.prepared).committed == record.prepared
        )
    one.task(one.order(1), 0, numbers(9))
    seen = one.participant.list_open()
    assert [s.incarnation for s in seen] == [one.run.incarnation]
    for _ in range(3):
        one.participant.abort(seen)
    assert one.participant.list_open() in ([], ())
    assert database.values("t") == [1]
    one.die()


def test_names_are_matched_exactly(database: Database, mechanism: str) -> None:
    """Neither another participant nor another query, however alike its name, sees or aborts what
    is open.
    """
    query = numbers_query(database, mechanism)
    one = query.started()
    one.task(one.order(0), 0, numbers(1))
    others = [
        replace(query, query_id=query.query_id + "-2"),
        replace(query, query_id=query.query_id.upper()),
        replace(query, query_id=query.query_id[:-1]),
        replace(query, participant=query.participant + " "),
        replace(query, participant="mysql:T"),
    ]
    for other in others:
        incarnation = other.started()
        assert list(incarnation.participant.list_open()) == []
        incarnation.die()
    assert len(one.participant.list_open()) == 1
    one.participant.abort(one.participant.list_open())
    one.die()


def test_leftovers_of_dead_tasks_are_swept(database: Database, mechanism: str) -> None:
    """What a dead incarnation's tasks had prepared, and nobody decided, is aborted by the next
    start.
    """
    query = numbers_query(database, mechanism)
    dead = query.started()
    for number in range(3):
        dead.task(dead.order(0), number, numbers(number))
    dead.die()
    assert database.staged() + len(database.xids()) > 0
    new = query.started()
    new.epoch(0, numbers(7))
    assert database.values("t") == [7]
    assert clean(database)
    new.die()


def test_operator_undoes_a_decided_epoch(database: Database, mechanism: str) -> None:
    """Rolled back or deleted by hand after the decision: the query stops and says what is
    missing, every time.
    """
    query = numbers_query(database, mechanism)
    old = query.started(StallsAtCommit())
    with pytest.raises(Crash):
        old.epoch(0, numbers(1, 2), numbers(3))
    old.die()
    if mechanism == "staged":
        database.run(f"DELETE FROM `{database.tables('exactum_stage_')[0]}`")
    else:
        database.roll_back_all()
    for _ in range(2):
        new = query.started()
        with pytest.raises(HeuristicOutcome, match="rows") as caught:
            new.epoch(0, numbers(1, 2), numbers(3))
        new.die()
        for transaction in decided(query, 0).prepared:
            assert transaction.identity in str(caught.value)
    assert database.values("t") == []


def test_operator_goes_on(database: Database, mechanism: str) -> None:
    """What the error tells the operator to do works: the rows by hand, the ledger's row, and the
    query goes on.
    """
    query = numbers_query(database, mechanism)
    old = query.started(StallsAtCommit())
    with pytest.raises(Crash):
        old.epoch(0, numbers(1, 2))
    old.die()
    if mechanism == "staged":
        database.run(f"DELETE FROM `{database.tables('exactum_stage_')[0]}`")
    else:
        database.roll_back_all()
    new = query.started()
    with pytest.raises(HeuristicOutcome) as caught:
        new.epoch(0, numbers(1, 2))
    new.die()
    statement = str(caught.value).split("that they are there: ")[1].split("; and start")[0]
    database.run("INSERT INTO t VALUES (1), (2)")
    database.run(statement)
    last = query.started()
    last.epoch(1, numbers(3))
    assert database.values("t") == [1, 2, 3]
    last.die()


def test_operator_undoes_before_the_decision(database: Database, mechanism: str) -> None:
    """Gone between prepare and decision: the attempt is void, nothing is visible, and the next
    start is exact.
    """
    query = numbers_query(database, mechanism)
    one = query.started()
    order = one.order(0)
    prepared = [p for p in (one.task(order, 0, numbers(1)),) if p is not None]
    if mechanism == "staged":
        database.run(f"DELETE FROM `{database.tables('exactum_stage_')[0]}`")
    else:
        database.roll_back_all()
    with pytest.raises(EpochAborted):
        one.participant.verify(prepared)
    one.die()
    new = query.started()
    new.epoch(0, numbers(1))
    assert database.values("t") == [1]
    assert clean(database)
    new.die()


def test_the_target_knows_what_the_log_forgot(database: Database, mechanism: str) -> None:
    """A decision log restored from an older copy is refused instead of doubling an epoch."""
    query = numbers_query(database, mechanism)
    one = query.started()
    for batch_id in range(3):
        one.epoch(batch_id, numbers(batch_id))
    one.die()
    for slot in [s for s in query.storage.records if s[1] >= 1]:
        del query.storage.records[slot]
    restored = query.started()
    with pytest.raises(CheckpointRefused):
        restored.epoch(1, numbers(1))
    assert database.values("t") == [0, 1, 2]
    assert clean(database)
    restored.die()


def test_connection_killed_in_commit(database: Database, mechanism: str) -> None:
    """KILL CONNECTION of all of a driver's sessions, again and again while it commits: the epoch
    stands once.
    """
    query = numbers_query(database, mechanism)
    one = query.started()
    stop = threading.Event()

    def killer() -> None:
        with database.client() as client, client.cursor() as cursor:
            while not stop.wait(0.003):
                cursor.execute(
                    "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = %s AND ID <> "
                    "CONNECTION_ID()",
                    (database.name,),
                )
                for (number,) in list(cursor.fetchall())[:1]:
                    try:
                        cursor.execute(f"KILL CONNECTION {number}")
                    except Exception:
                        continue

    expected: list[int] = []
    database.run("SELECT 1")
    database.disconnect()
    for batch_id in range(6):
        rows = [
            numbers(*range(100 * batch_id + 10 * task, 100 * batch_id + 10 * task + 10))
            for task in range(3)
        ]
        expected += [v for r in rows for v in r.column("v").to_pylist()]
        order = one.order(batch_id)
        prepared = tuple(
            p for p in (one.task(order, n, r) for n, r in enumerate(rows)) if p is not None
        )
        one.participant.verify(prepared)
        record = DecisionRecord(
            Epoch(query.query_id, batch_id), 1, Decision.COMMIT, one.run.incarnation, prepared
        )
        stop.clear()
        thread = threading.Thread(target=killer)
        thread.start()
        try:
            for _ in range(200):
                try:
                    report = one.participant.commit(permit_of(record), prepared)
                except OutcomeUnknown:
                    continue
                break
        finally:
            stop.set()
            thread.join()
        assert set(report.committed) == set(prepared)
    assert database.values("t") == sorted(expected)
    assert clean(database)
    one.die()


def test_settings_change_while_an_epoch_is_decided(database: Database, mechanism: str) -> None:
    """Another mechanism and another column after a crash: the decided epoch is finished as it was
    written, and the old staging table goes."""
    database.run("CREATE TABLE t (v bigint, w bigint)")
    query = numbers_query(database, mechanism)
    old = query.started(StallsAtCommit())
    with pytest.raises(Crash):
        old.epoch(0, numbers(1), numbers(2))
    old.die()
    other = "prepared" if mechanism == "staged" else "staged"
    changed = replace(
        query,
        make_sink=lambda: MySQLSink(database.url, table="t", mechanism=other),
        columns=(("v", "bigint"), ("w", "bigint")),
    )
    new = changed.started()
    assert not new.epoch(0).written
    new.epoch(1, pa.record_batch([pa.array([3]), pa.array([4])], ["v", "w"]))
    new.die()
    assert database.run("SELECT v, w FROM t ORDER BY v") == [(1, None), (2, None), (3, 4)]
    assert clean(database)
    changed.started().die()
    assert len(database.tables("exactum_stage_")) == (1 if other == "staged" else 0)
