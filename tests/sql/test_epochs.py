"""Epochs in both kinds of server: exactly once through every crash, lost reply, repeat and second
driver.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from exactum.errors import OutcomeUnknown
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import CommitPermit, SourceOffsets
from exactum.protocol.sink import TaskName
from exactum.sql import session as retrying_session
from exactum.sql.session import ServerFailure, SqlFailure
from exactum.sql.target import Ledger
from exactum.testing import MemoryDecisionLog, interpose
from exactum.testing.memory import permit_of
from tests.kit.errors import raised
from tests.kit.every_call import every_call
from tests.kit.sql.losses import Losses, lossy
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import Incarnation, Query, expected, narrow, rows_of, tasks_of

CALLS_MAX = 10_000


def rows_in(database: SqlDatabase, table: str) -> list[tuple[int, str]]:
    return sorted(database.rows(f"SELECT id, name FROM {table}"))


def restored(database: SqlDatabase, table: str, last: int) -> None:
    """As it was after batch ``last``."""
    database.run("DELETE FROM exactum_ledger WHERE batch_id > %s", [last])
    database.run(f"DELETE FROM {table} WHERE id >= %s", [1000 * (last + 1)])


def permit(query: Query, batch_id: int) -> CommitPermit:
    """For the COMMIT that stands for a batch."""
    records = MemoryDecisionLog(query.storage, query.query_id).read(batch_id)
    return permit_of(next(r for r in reversed(records) if r.prepared))


def decided(database: SqlDatabase, table: str) -> tuple[Query, Incarnation, CommitPermit]:
    """A query whose epoch 0 is decided and not committed."""
    query = database.query(table)
    driver = query.start()
    driver.die_before_commit(0)
    return query, driver, permit(query, 0)


def test_what_no_decision_names_is_swept(database: SqlDatabase) -> None:
    """What a dead run's tasks have left; a speculative copy that lost; and a zombie of the dead run
    that prepares after the next one has started.
    """
    table = database.table()
    query = database.query(table)
    dead = query.start()
    dead.write(dead.order(0))
    dead.participant.close()
    driver = query.start()
    driver.losers = 3
    driver.run(0)
    assert query.staged() == []
    dead.task(dead.order(0), TaskName(0, 0, 0), tasks_of(0)[0])
    assert driver.participant.list_open() == []  # it is of a batch that is visible
    driver.run(1)
    driver.close()
    assert rows_in(database, table) == expected([0, 1])
    assert query.staged() == []


@pytest.mark.kills_server
@pytest.mark.variants(1)
@pytest.mark.parametrize("moment", ["commit", "verify", "decide"])
def test_the_server_is_killed(database: SqlDatabase, moment: str) -> None:
    """SIGKILL of the whole server before this step, and a restart: the run goes on, each row is
    there once.
    """
    table = database.table()
    query = database.query(table)
    driver = query.start()
    driver.run(0)
    killed: list[str] = []

    def around(label: str, call: Callable[[], object]) -> object:
        if label == moment and not killed:
            killed.append(label)
            database.server.kill()
            database.server.start()
            assert rows_in(database, table) == expected([0])
        return call()

    ports = [interpose(port, around) for port in (driver.participant, driver.log)]
    Coordinator(driver.run_of, ports[:1], ports[1]).run(1, SourceOffsets(), driver.write)
    driver.close()
    assert killed == [moment]
    assert rows_in(database, table) == expected([0, 1])
    assert query.staged() == []


@pytest.mark.deep
@pytest.mark.sweep
@pytest.mark.parametrize("lost", ["request", "reply"])
def test_the_connection_is_lost_at_every_statement(database: SqlDatabase, lost: str) -> None:
    """Whichever statement of a driver is lost, or its reply (a COMMIT's, too): the epoch goes
    on, and is exact.
    """
    for at in every_call(CALLS_MAX):
        table = database.table()
        losses = Losses(at, lost)
        sink = database.sink(table)
        query = Query(lambda sink=sink: sink)  # type: ignore[misc]
        query.tasks = lambda batch_id: [[narrow(rows)] for rows in rows_of(batch_id, tasks=2)]
        driver = query.start()
        lossy(driver, losses)
        for batch_id in (0, 1):
            driver.run(batch_id)
        driver.close()
        assert rows_in(database, table) == expected([0, 1], tasks=2), losses
        assert query.staged() == [], losses
        database.drop_all()
        if losses.calls < at:
            break
    assert at > 15


def test_sessions_end_again_and_again_during_commits(database: SqlDatabase) -> None:
    """An administrator ends sessions all along while an epoch is committed: it stands once."""
    table = database.table()
    query = database.query(table)
    for batch_id in range(3):
        driver = query.start()
        driver.die_before_commit(batch_id)
        allowed = permit(query, batch_id)
        report = None
        stop = threading.Event()
        ending = threading.Thread(target=end_sessions, args=(database, stop))
        ending.start()
        try:
            while report is None:
                with suppress(OutcomeUnknown):
                    report = driver.participant.commit(allowed, allowed.record.prepared)
        finally:
            stop.set()
            ending.join()
        assert set(report.committed) == set(allowed.record.prepared)
        driver.close()
    assert rows_in(database, table) == expected(range(3))
    assert query.staged() == []


def end_sessions(database: SqlDatabase, stop: threading.Event) -> None:
    """The first pauses are shorter than a commit; in the end one is long enough on any machine."""
    pause_s = 0.002
    while not stop.wait(pause_s):
        database.end_sessions()
        pause_s *= 1.1


def test_a_server_that_is_lost_at_the_commit(
    database: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver says that the epoch is decided, and the next one carries it out."""

    def lost(*_: object) -> None:
        raise SqlFailure(ServerFailure.LOST, "", "the server went away")

    table = database.table()
    query, driver, allowed = decided(database, table)
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "prune", lost)
        patched.setattr(retrying_session, "TIMEOUT_S", 0.2)
        with raised(OutcomeUnknown, allowed.record.epoch, "the server went away"):
            driver.participant.commit(allowed, allowed.record.prepared)
    assert rows_in(database, table) == []
    driver.close()
    following = query.start()
    assert not following.run(0).written
    following.close()
    assert rows_in(database, table) == expected([0])
    assert query.staged() == []


def test_a_machine_that_stood_still_for_longer_than_a_step_is_tried(
    database: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over when the first try fails, and the server is there."""
    driver = database.query(database.table()).start()
    driver.run(0)
    monkeypatch.setattr(retrying_session, "TIMEOUT_S", 0.0)
    database.end_sessions()
    assert driver.participant.list_open() == []
    driver.close()
