"""Tables and decision logs in PostgreSQL and MariaDB, each fault made for real. Nothing is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from exactum.sql.table import TableName
from tests.kit.doctor.diagnosis import Diagnosis, diagnosed
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.sql import mysql_server
from tests.kit.sql.clerk import Clerk, clerk
from tests.kit.sql.sql_database import SqlDatabase
from tests.sql.conftest import database

__all__ = ["clerk", "database"]
UPSERT = ", mode='upsert', key='id'"
LOG_TABLES = ("exactum_decisions", "exactum_decision_logs")


def is_postgres(database: SqlDatabase) -> bool:
    return database.dialect.name == "PostgreSQL"


def diagnosed_table(
    database: SqlDatabase, folder: Path, table: str, more: str = "", url: str = ""
) -> Diagnosis:
    kind = "PostgresSink" if is_postgres(database) else "MySQLSink"
    sink = f"exactum.{kind}({url or database.url!r}, table={table!r}{more})"
    return diagnosed(sinks=sink, folder=folder)


def tables(database: SqlDatabase) -> set[Any]:
    """Of users, with indexes and sequences where they are listed."""
    if is_postgres(database):
        return set(
            database.rows(
                "SELECT n.nspname::text, relname::text FROM pg_class c JOIN pg_namespace n ON "
                "n.oid = relnamespace WHERE nspname NOT LIKE 'pg_%' AND "
                "nspname <> 'information_schema'"
            )
        )
    return set(database.rows("SHOW TABLES"))


def test_a_healthy_server(database: SqlDatabase, tmp_path: Path) -> None:
    """Errors are none, and rows and tables are those of before."""
    doubled = "doubled bigint GENERATED ALWAYS AS (id * 2) STORED"
    table = database.table(f"id bigint PRIMARY KEY, name text, {doubled}")
    database.run(f"INSERT INTO {table} (id, name) VALUES (1, 'kept')")
    before = tables(database)
    found = diagnosed_table(database, tmp_path, table, f"{UPSERT}, delete_when='gone'")
    assert found.all_is_well(), found.output
    assert found.has("ok", table, "can be written, and exactum_ledger can be created")
    assert found.has("ok", "clock of the server")
    missing = diagnosed_table(database, tmp_path, "missing", ", create_table=True")
    assert missing.all_is_well(), missing.output
    log = diagnosed("--decision-log", database.url)
    assert log.all_is_well(), log.output
    assert log.has("ok", "decision log", "can be created")
    assert tables(database) == before
    assert database.rows(f"SELECT * FROM {table}") == [(1, "kept", 2)]


def test_what_is_wrong_with_a_table(database: SqlDatabase, tmp_path: Path) -> None:
    """What a start refuses, in its words: all that it may be is shown in ``tests/sql``."""
    found = diagnosed_table(database, tmp_path, "missing")
    assert found.has("error", "missing", "there is no table") and found.status == 1
    if is_postgres(database):
        database.run("CREATE UNLOGGED TABLE unfit (id bigint)")
    else:
        database.run("CREATE TABLE unfit (id bigint) ENGINE=MyISAM")
    found = diagnosed_table(database, tmp_path, "unfit")
    assert found.has("error", "unfit", "UNLOGGED" if is_postgres(database) else "only InnoDB")
    keyless = database.table()
    found = diagnosed_table(database, tmp_path, keyless, UPSERT)
    assert found.has("error", keyless, "needs a primary key or a unique")


def test_rights_that_are_missing(database: SqlDatabase, clerk: Clerk, tmp_path: Path) -> None:
    """One after the other is granted."""
    table = database.table("id bigint PRIMARY KEY, name text")

    def tried(more: str = UPSERT) -> Diagnosis:
        return diagnosed_table(database, tmp_path, table, more, clerk.url)

    clerk.grant("SELECT", table)
    assert tried().has("error", table, "no INSERT, UPDATE on")
    clerk.grant("INSERT, UPDATE", table)
    assert tried().has("error", table, "may not create tables beside")
    assert diagnosed("--decision-log", clerk.url).has(
        "error", "decision log", "may not create them"
    )
    clerk.grant_create()
    (error,) = tried().told("error")
    assert "may not create temporary tables" in error
    assert tried("").all_is_well()  # who appends needs none
    clerk.grant_temporary()
    assert tried().all_is_well()
    assert diagnosed("--decision-log", clerk.url).all_is_well()


def test_tables_that_an_administrator_has_made(
    database: SqlDatabase, clerk: Clerk, tmp_path: Path
) -> None:
    """Without CREATE: the rights on the ledger and on the decision log count. A record of nobody is
    taken back.
    """
    table = database.table()
    files = database.files("somebody")
    files.open()
    files.close()
    session = database.dialect.connect(database.address, "a test", 5.0)
    schema: Any = "public" if is_postgres(database) else getattr(database, "name", None)
    database.dialect.create_own_tables(session, TableName(schema, table))
    session.close()

    def tried() -> Diagnosis:
        return diagnosed_table(database, tmp_path, table, url=clerk.url)

    clerk.grant("INSERT", table)
    clerk.grant("SELECT", "exactum_ledger")
    assert tried().has("error", table, "INSERT,", "DELETE on", "exactum_ledger")
    clerk.grant("INSERT, UPDATE, DELETE", "exactum_ledger")
    assert tried().has("ok", table, "exactum_ledger is there")
    clerk.grant("SELECT", *LOG_TABLES)
    assert diagnosed("--decision-log", clerk.url).has("error", "cannot be recorded")
    clerk.grant("INSERT, UPDATE, DELETE", *LOG_TABLES)
    found = diagnosed("--decision-log", clerk.url)
    assert found.all_is_well(), found.output
    assert found.has("ok", "decision log", "a second one was refused")
    assert [database.value(f"SELECT count(*) FROM {name}") for name in LOG_TABLES] == [0, 1]


def test_a_decision_log_without_its_key(database: SqlDatabase) -> None:
    """Two records for one slot: two drivers would both believe theirs."""
    files = database.files("somebody")
    files.open()
    files.close()
    key = "CONSTRAINT exactum_decisions_pkey" if is_postgres(database) else "PRIMARY KEY"
    database.run(f"ALTER TABLE exactum_decisions DROP {key}")
    found = diagnosed("--decision-log", database.url)
    assert found.has("error", "decision log", "takes two records for one slot")


def test_a_wrong_password(database: SqlDatabase, tmp_path: Path) -> None:
    """At once, and it is not shown."""
    right = quote(database.server.password, safe="")
    url = database.url.replace(f":{right}@", ":guessed-staple@")
    found = diagnosed_table(database, tmp_path, "t", url=url)
    assert found.has("error", "does not let the user in")
    assert "guessed-staple" not in found.output


@pytest.mark.mariadb
def test_settings_that_make_mysql_slow(mariadb: LocalMariaDB, tmp_path: Path) -> None:
    with mysql_server.Database.made(mariadb) as database:
        table = database.table()
        database.run("SET GLOBAL local_infile = 0")
        try:
            found = diagnosed_table(database, tmp_path, table)
        finally:
            database.run("SET GLOBAL local_infile = 1")
    assert found.has("warning", "local_infile is off")
    assert found.status == 0
