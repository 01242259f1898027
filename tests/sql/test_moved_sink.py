"""A sink that points to another database while something is decided for the former one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from exactum import MySQLSink, PostgresSink
from exactum.errors import HeuristicOutcome, SettingRefused
from exactum.sql.sink import SqlSink
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql import mysql_server, postgres_server
from tests.kit.sql.sql_database import NOTHING, SqlDatabase
from tests.kit.sql.sql_epochs import expected
from tests.sql.test_epochs import MECHANISMS, decided, die_before_commit, query_on, rows_in
from tests.sql.test_operator import staging_of, statement_in

both = pytest.mark.parametrize("mechanism", MECHANISMS)


@contextmanager
def elsewhere(database: SqlDatabase, table: str) -> Iterator[str]:
    """The URL of another server's database of that name, with an empty table of that name."""
    columns = "(id bigint, name text)"
    if isinstance(database, postgres_server.Database):
        with LocalPostgres() as another:
            there = postgres_server.Database(another)
            there.run(f"CREATE TABLE {table} {columns}")
            yield there.url
            there.close()
    else:
        assert isinstance(database, mysql_server.Database)
        with LocalMariaDB() as server:
            other = mysql_server.Database(server, database.name)
            other.run(f"CREATE DATABASE {other.name}", database="mysql")
            other.disconnect()
            other.run(f"CREATE TABLE {table} {columns}")
            yield other.url
            other.disconnect()


def sink_at(database: SqlDatabase, url: str, table: str, mechanism: str) -> SqlSink:
    kind = MySQLSink if isinstance(database, mysql_server.Database) else PostgresSink
    return kind(url, table=table, mechanism=mechanism)


def alias_of(database: SqlDatabase) -> str:
    assert "@127.0.0.1:" in database.url
    return database.url.replace("@127.0.0.1:", "@localhost:")


@pytest.mark.deep
@both
def test_another_database_sends_back_to_the_former(database: SqlDatabase, mechanism: str) -> None:
    """It knows nothing of what is decided: who would write it there by hand would double it, for
    the former database has it. Pointed back, it is committed, and then the sink may move.
    """
    table = database.table()
    query, driver, _ = decided(database, table, mechanism)
    driver.close()
    here = query.sink
    with elsewhere(database, table) as url:
        query.sink = lambda: sink_at(database, url, table, mechanism)
        with pytest.raises(SettingRefused, match="point it back and start until") as caught:
            query.run(0)
        assert database.server.password not in str(caught.value)
        query.sink = here
        query.run(0)
        assert rows_in(database, table) == expected([0])
        assert database.leftovers() == NOTHING
        query.sink = lambda: sink_at(database, url, table, mechanism)
        query.run(1)
    assert rows_in(database, table) == expected([0])


@both
def test_another_name_of_the_server_goes_on(database: SqlDatabase, mechanism: str) -> None:
    table = database.table()
    query, driver, _ = decided(database, table, mechanism)
    driver.close()
    query.sink = lambda: sink_at(database, alias_of(database), table, mechanism)
    query.run(0, 1)
    assert rows_in(database, table) == expected([0, 1])


def test_another_name_where_a_part_was_undone(database: SqlDatabase) -> None:
    """The error's last words are the way on: there is nothing to go back to."""
    table = database.table()
    query, driver, _ = decided(database, table, "staged")
    driver.close()
    database.run(f"TRUNCATE {staging_of(database)}")
    query.sink = lambda: sink_at(database, alias_of(database), table, "staged")
    with pytest.raises(SettingRefused, match="one database by two names.*4 of 4 rows") as caught:
        query.run(0)
    for row in expected([0]):
        database.run(f"INSERT INTO {table} VALUES (%s, %s)", row)
    database.run(statement_in(caught.value))
    query.run(0, 1)
    assert rows_in(database, table) == expected([0, 1])


@pytest.mark.deep
@pytest.mark.postgres
def test_a_service_that_leads_elsewhere(
    postgres: LocalPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name stays the same, so the record does not show it. Who loaded the rows by hand there
    would have them twice: the former server still holds them.
    """
    file = tmp_path / "services"
    monkeypatch.setenv("PGSERVICEFILE", str(file))

    def lead(url: str) -> None:
        to = urlsplit(url)
        file.write_text(
            f"[shop]\nhost={to.hostname}\nport={to.port}\ndbname={to.path.strip('/')}\n"
            f"user={to.username}\npassword={to.password}\n"
        )

    with postgres_server.Database.cleaned(postgres) as database:
        table = database.table()
        lead(database.url)
        query = query_on(database, table, "staged")
        query.sink = lambda: PostgresSink("postgresql://?service=shop", table=table)
        driver = query.start()
        die_before_commit(driver, 0)
        driver.close()
        with elsewhere(database, table) as url:
            lead(url)
            with pytest.raises(HeuristicOutcome, match="if that service leads to another server"):
                query.run(0)
            lead(database.url)
            query.run(0)
        assert rows_in(database, table) == expected([0])
