"""What PostgreSQL does in a way of its own: sessions, silence, TRUNCATE."""

from __future__ import annotations

import pytest

from exactum import PostgresSink
from exactum.errors import EpochAborted, SettingRefused, Unavailable
from exactum.protocol.model import Decision, DecisionRecord, Epoch, Incarnation
from exactum.protocol.sink import Guarantee, QueryRun, TaskName, WriteOrder
from exactum.sql.dialect import Role
from exactum.sql.postgres import dialect as postgres
from exactum.sql.postgres import session as postgres_session
from exactum.testing.memory import permit_of
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_database import NOTHING
from tests.kit.sql.sql_epochs import expected, narrow
from tests.kit.waiting import await_true
from tests.sql.test_epochs import MECHANISMS, query_on, rows_in

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_one_session_serves_many_tasks(database: Database, mechanism: str) -> None:
    """A worker process keeps its session: five epochs of three tasks make one connection."""
    table = database.table()
    driver = query_on(database, table, mechanism).start()
    pids: set[int] = set()
    for batch_id in range(5):
        driver.run(batch_id)
        found = database.rows(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'exactum task' AND state = "
            "'idle' AND datname = current_database()"
        )
        pids |= {pid for (pid,) in found}
    driver.close()
    assert len(pids) == 1


@pytest.mark.kills_server
def test_a_server_that_stops_answering(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server under SIGSTOP keeps its connections and says nothing: the task and the driver
    give up, in time.
    """
    table = database.table()
    query = query_on(database, table, "staged")
    driver = query.start()
    driver.run(0)
    writer = driver.opened.writers.open(WriteOrder(driver.run_of, 1, 0, 2), TaskName(0, 0, 0))
    writer.write(narrow([(1, "lost")]))
    monkeypatch.setattr(postgres_session, "REPLY_TIMEOUT_S", 0.5)
    monkeypatch.setattr(postgres_session, "CONNECT_TIMEOUT_S", 2)
    database.server.pause()
    try:
        with pytest.raises(EpochAborted, match="did not answer within"):
            writer.prepare()
        writer.abort()
        monkeypatch.setattr("exactum.sql.retrying_session.TIMEOUT_S", 0.0)
        with pytest.raises(Unavailable):
            driver.participant.list_open()
    finally:
        database.server.resume()
        monkeypatch.undo()
    driver.close()
    following = query.start()
    following.run(1)
    following.close()
    assert rows_in(database, table) == expected([0, 1])
    assert database.leftovers() == NOTHING


def test_a_server_that_forgets_commits() -> None:
    """Refused at the start; unless each COMMIT waits for a standby, which has it then."""
    with LocalPostgres(settings={"fsync": "off"}) as server:
        with pytest.raises(SettingRefused, match="fsync=off"):
            PostgresSink(server.url, table="t", create_table=True).open(
                QueryRun("q", Incarnation("a"), Guarantee.EXACTLY_ONCE), "t", [("id", "bigint")]
            )
        address = postgres_session.address_of(server.url, None, "test")
        opened = postgres_session.opened(address, "test")
        opened.execute_alone("ALTER SYSTEM SET synchronous_standby_names = 'storage'")
        opened.query("SELECT pg_reload_conf()")
        opened.close()

        def is_taken() -> bool:
            try:
                postgres_session.connect(address, Role.DRIVER, "test", 1).close()
            except SettingRefused:
                return False
            return True

        await_true(is_taken, "the server has read its configuration again")


@pytest.mark.parametrize("commits", [True, False])
def test_clearing_spares_the_parts_of_others(
    database: Database, monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    """However large the staging table is, a commit or an abort empties it only of its own parts."""
    monkeypatch.setattr(postgres, "TRUNCATE_BYTES", -1)
    table = database.table()
    query = query_on(database, table, "staged")
    one, other = query.start(), query.start()
    theirs = other.write(WriteOrder(other.run_of, 1, 0, 1))
    mine = one.write(WriteOrder(one.run_of, 0, 0, 1))
    if commits:
        record = DecisionRecord(
            Epoch(query.query_id, 0), 1, Decision.COMMIT, one.run_of.incarnation, tuple(mine)
        )
        one.participant.verify(mine)
        one.participant.commit(permit_of(record), mine)
    else:
        own = one.run_of.incarnation
        one.participant.abort([s for s in one.participant.list_open() if s.incarnation == own])
    assert database.leftovers() == {**NOTHING, "directory": 3, "staged rows": 12}
    other.participant.verify(theirs)
    other.participant.abort(other.participant.list_open())
    assert database.leftovers() == NOTHING
    for driver in (one, other):
        driver.close()
