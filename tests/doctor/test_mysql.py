"""MariaDB: servers, tables and decision logs, each fault made for real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from exactum.sql.dialect import Role
from exactum.sql.table import TableName
from tests.kit.doctor.diagnosis import Diagnosis, diagnosed
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.sql.mysql_server import Database

pytestmark = pytest.mark.mariadb


@pytest.fixture
def database(mariadb: LocalMariaDB) -> Iterator[Database]:
    with Database.made(mariadb) as found:
        yield found


def look(url: str, folder: Path, table: str, more: str = "") -> Diagnosis:
    sink = f"exactum.MySQLSink({url!r}, table={table!r}{more})"
    return diagnosed(sinks=sink, folder=folder)


def test_a_healthy_server_has_no_errors_and_nothing_is_left(
    database: Database, tmp_path: Path
) -> None:
    table = database.table("id bigint PRIMARY KEY, name text NOT NULL, doubled bigint AS (id * 2)")
    database.run(f"INSERT INTO {table} (id, name) VALUES (1, 'kept')")
    found = look(database.url, tmp_path, table, ", mode='upsert', key='id', delete_when='gone'")
    assert found.all_is_well(), found.output
    assert found.has("ok", f"MySQLSink('{table}')", "can be written")
    assert found.has("ok", "clock of the server")
    log = diagnosed("--decision-log", database.url)
    assert log.all_is_well(), log.output
    assert log.has("ok", "decision log", "can be created")
    assert database.tables("") == [table]
    assert database.rows(f"SELECT * FROM {table}") == [(1, "kept", 2)]


@pytest.mark.parametrize(
    ("columns", "more", "text"),
    [
        ("id bigint PRIMARY KEY) ENGINE=MyISAM -- ", "", "only InnoDB tables hold transactions"),
        ("id bigint, name text", ", mode='upsert', key='id'", "needs a primary key or a unique"),
        (
            "id bigint PRIMARY KEY, mail varchar(50) UNIQUE",
            ", mode='upsert', key='id'",
            "another one than key=",
        ),
        ("", "", "There is no table"),
    ],
    ids=["MyISAM", "no key", "one key too many", "missing"],
)
def test_what_is_wrong_with_a_table(
    database: Database, tmp_path: Path, columns: str, more: str, text: str
) -> None:
    table = database.table(columns) if columns else "missing"
    found = look(database.url, tmp_path, table, more)
    assert found.has("error", f"MySQLSink('{table}')", text)
    assert found.status == 1


@pytest.fixture
def clerk(database: Database) -> Iterator[str]:
    """The URL of a user who may connect, and do nothing but look at one table."""
    database.run("CREATE USER 'clerk'@'%' IDENTIFIED BY 'clerks'")
    try:
        server = database.server
        yield f"mysql://clerk:clerks@{server.host}:{server.port}/{database.name}"
    finally:
        database.run("DROP USER 'clerk'@'%'")


def test_rights_that_are_missing(database: Database, clerk: str, tmp_path: Path) -> None:
    """One after the other is granted; what a role brings counts as well."""
    table = database.table("id bigint PRIMARY KEY, name text")
    upsert = ", mode='upsert', key='id'"
    database.run(f"GRANT SELECT ON {database.name}.{table} TO 'clerk'@'%'")
    found = look(clerk, tmp_path, table, upsert)
    assert found.has("error", table, "no INSERT, UPDATE on")
    database.run(f"GRANT INSERT, UPDATE ON {database.name}.{table} TO 'clerk'@'%'")
    found = look(clerk, tmp_path, table, upsert)
    assert found.has("error", table, "may not create tables beside")
    assert diagnosed("--decision-log", clerk).has("error", "decision log", "may not create them")
    database.run(f"GRANT CREATE ON {database.name}.* TO 'clerk'@'%'")
    found = look(clerk, tmp_path, table, upsert)
    assert found.told("error") == [
        next(text for text in found.told("error") if "may not create temporary tables" in text)
    ]
    assert look(clerk, tmp_path, table).all_is_well()
    database.run(f"GRANT CREATE TEMPORARY TABLES ON {database.name}.* TO 'clerk'@'%'")
    assert look(clerk, tmp_path, table, upsert).all_is_well()
    assert diagnosed("--decision-log", clerk).all_is_well()
    assert database.tables("") == [table]


def test_a_ledger_that_an_administrator_has_made(
    database: Database, clerk: str, tmp_path: Path
) -> None:
    """Without CREATE: the rights on it are looked at."""
    table = database.table()
    session = database.dialect.connect(database.address, Role.DRIVER, "a test", 5.0)
    database.dialect.create_own_tables(session, TableName(database.name, table))
    session.close()
    database.run(f"GRANT INSERT ON {database.name}.{table} TO 'clerk'@'%'")
    ledger = f"{database.name}.exactum_ledger"
    database.run(f"GRANT SELECT ON {ledger} TO 'clerk'@'%'")
    assert look(clerk, tmp_path, table).has(
        "error", table, "no INSERT, UPDATE, DELETE on exactum_ledger"
    )
    database.run(f"GRANT INSERT, UPDATE, DELETE ON {ledger} TO 'clerk'@'%'")
    assert look(clerk, tmp_path, table).has("ok", table, "exactum_ledger is there")


def test_a_decision_log_that_is_there(database: Database, clerk: str) -> None:
    """It is written to by nobody's name, and that is taken back."""
    files = database.files("somebody")
    files.open()
    files.close()
    database.run(f"GRANT SELECT ON {database.name}.* TO 'clerk'@'%'")
    assert diagnosed("--decision-log", clerk).has("error", "decision log", "cannot be recorded")
    found = diagnosed("--decision-log", database.url)
    assert found.all_is_well(), found.output
    assert found.has("ok", "decision log", "a second one was refused")
    assert database.value("SELECT COUNT(*) FROM exactum_decisions") == 0
    assert database.value("SELECT COUNT(*) FROM exactum_decision_logs") == 1


def test_settings_that_make_it_slow(database: Database, tmp_path: Path) -> None:
    table = database.table()
    database.run("SET GLOBAL local_infile = 0")
    database.run("SET GLOBAL max_allowed_packet = 1048576")
    try:
        found = look(database.url, tmp_path, table)
    finally:
        database.run("SET GLOBAL local_infile = 1")
        database.run("SET GLOBAL max_allowed_packet = 16777216")
    assert found.has("warning", "local_infile is off")
    assert found.has("warning", "max_allowed_packet is 1,048,576")
    assert found.status == 0


def test_a_wrong_password(database: Database, tmp_path: Path) -> None:
    server = database.server
    url = f"mysql://{server.user}:guessed-staple@{server.host}:{server.port}/{database.name}"
    found = look(url, tmp_path, "t")
    assert found.has("error", "mysql://", "Access denied")
    assert "guessed-staple" not in found.output
