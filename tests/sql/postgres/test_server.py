"""What PostgreSQL does in a way of its own: silence, and what it forgets."""

from __future__ import annotations

import psycopg
import pytest

from exactum.errors import SettingRefused, Unavailable
from exactum.sql.postgres import connection as postgres_connection
from exactum.sql.postgres import session as postgres_session
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import expected
from tests.kit.waiting import await_true
from tests.sql.test_epochs import rows_in

pytestmark = pytest.mark.postgres


@pytest.mark.kills_server
def test_a_server_that_stops_answering(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server under SIGSTOP keeps its connections and says nothing: the driver gives up, in
    time.
    """
    table = database.table()
    query = database.query(table)
    driver = query.start()
    driver.run(0)
    prepared = driver.write(driver.order(1))
    monkeypatch.setattr(postgres_connection, "REPLY_TIMEOUT_S", 0.5)
    monkeypatch.setattr(postgres_session, "CONNECT_TIMEOUT_S", 2)
    database.server.pause()
    try:
        monkeypatch.setattr("exactum.sql.session.TIMEOUT_S", 0.0)
        monkeypatch.setattr("exactum.sql.session.TRIES_MIN", 1)
        with pytest.raises(Unavailable, match="did not answer within"):
            driver.participant.verify(prepared)
    finally:
        database.server.resume()
        monkeypatch.undo()
    driver.close()
    following = query.start()
    following.run(1)
    following.close()
    assert rows_in(database, table) == expected([0, 1])
    assert query.staged() == []


def test_a_server_that_forgets_commits() -> None:
    """Refused at the start; unless each COMMIT waits for a standby, which has it then."""
    with LocalPostgres(settings={"fsync": "off"}) as server:
        with pytest.raises(SettingRefused, match="fsync=off"):
            Database(server).query("t", create_table=True).check()
        address = postgres_session.address_of(server.url, None, "test")
        with psycopg.connect(server.url, autocommit=True) as client:
            client.execute("ALTER SYSTEM SET synchronous_standby_names = 'storage'")
            client.execute("SELECT pg_reload_conf()")

        def is_taken() -> bool:
            try:
                postgres_session.connect(address, "test", 1).close()
            except SettingRefused:
                return False
            return True

        await_true(is_taken, "the server has read its configuration again")
