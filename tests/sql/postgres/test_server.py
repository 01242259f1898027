"""What PostgreSQL does in a way of its own: silence, and what it forgets."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from exactum.errors import EpochAborted, SettingRefused, Unavailable
from exactum.sinks.frames import Frame
from exactum.sinks.staged import StagedPart
from exactum.sql import session as retrying_session
from exactum.sql.postgres import connection as postgres_connection
from exactum.sql.postgres import session as postgres_session
from exactum.sql.target import SqlTarget
from tests.kit.errors import raised
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import expected
from tests.kit.waiting import WAIT_MAX_S, await_true
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
        with raised(Unavailable, " 0 s"):  # the limit above, rounded
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
        with raised(SettingRefused, "SQL_SERVER", "fsync=off"):
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


# ---- a driver that ends, or stands still, in the middle of a COPY ------------------------------

IN_COPY = (
    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'exactum commit%' "
    "AND datname = current_database() AND state = 'active' AND wait_event = 'ClientRead' "
    "AND query LIKE 'COPY%'"
)
TCP_REPAIR = 19
"""Of Linux; a socket that is closed in this state tells the other side nothing."""


def in_copy(database: Database) -> list[Any]:
    return database.rows(IN_COPY)


def test_a_driver_that_is_frozen_in_the_middle_of_a_copy(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No timeout of the server ends its session. Its successor does; woken, it changes nothing. Nor
    does an older run end what is the successor's.
    """
    monkeypatch.setattr(retrying_session, "LOCK_TIMEOUT_S", 0.5)
    monkeypatch.setattr(retrying_session, "TIMEOUT_S", 3.0)
    table = database.table("id bigint PRIMARY KEY, name text")
    query = database.query(table)
    frozen = query.start()
    prepared = frozen.write(frozen.order(0))
    woken = stalling(frozen.participant.target)  # type: ignore[attr-defined]
    with ThreadPoolExecutor(1, "frozen") as pool:
        holding = pool.submit(frozen.participant.verify, prepared)
        try:
            await_true(lambda: len(in_copy(database)) == 1, "it stands still in its COPY")
            query.run(0, 1)
        finally:
            woken.set()
        with pytest.raises(EpochAborted):
            holding.result(WAIT_MAX_S)
        late = frozen.write(frozen.order(2))
        successor = query.start()
        prepared = successor.write(successor.order(2))
        woken = stalling(successor.participant.target)  # type: ignore[attr-defined]
        holding = pool.submit(successor.participant.verify, prepared)
        try:
            await_true(lambda: len(in_copy(database)) == 1, "the successor is slow")
            with raised(Unavailable, "(55P03)"):
                frozen.participant.verify(late)
        finally:
            woken.set()
        assert holding.result(WAIT_MAX_S) == prepared
    for driver in (frozen, successor):
        driver.close()
    assert rows_in(database, table) == expected([0, 1])


def stalling(target: SqlTarget) -> threading.Event:
    """It sends its first frame, and stands still until this is set."""
    woken, frames = threading.Event(), target._frames

    def stalled(parts: Sequence[StagedPart]) -> Iterator[Frame]:
        found = frames(parts)
        yield next(found)
        woken.wait(WAIT_MAX_S)
        yield from found

    target._frames = stalled  # type: ignore[method-assign]
    return woken


@pytest.mark.deep
def test_a_driver_whose_host_is_lost_in_the_middle_of_a_copy(database: Database) -> None:
    """The server finds out by itself and undoes what was open, also where nobody starts the query
    again.
    """
    table = database.table()
    session = postgres_session.connect(database.address, "exactum commit", 1.0)
    statement = f"COPY {table} FROM STDIN".encode()
    with suppress(psycopg.Error), session.connection.cursor().copy(statement):
        await_true(lambda: len(in_copy(database)) == 1, "it is in its COPY")
        time.sleep(1.0)  # until what the server has sent is acknowledged: nothing is under way
        lose(session.connection.fileno())
        await_true(lambda: in_copy(database) == [], "its session has ended", 60.0)
    session.close()


def lose(descriptor: int) -> None:
    """The connection is gone here, and the server is not told."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), descriptor)
