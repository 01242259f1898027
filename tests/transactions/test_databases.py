"""``exactum transactions`` on tables in PostgreSQL and MariaDB, and that nothing secret of them is on file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from exactum import MySQLSink, PostgresSink
from exactum.errors import CheckpointRefused
from exactum.sql.sink import SqlSink
from tests.kit.errors import raised
from tests.kit.query_record import newest
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql import mysql_server
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import ID_AND_NAME, expected, tasks_of
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import listed, transactions, typed
from tests.kit.verify.recorded_query import RecordedQuery
from tests.sql.conftest import database

__all__ = ["database"]
SINK = "out"
TASKS, ROWS = 3, 4


def query(folder: Path, sink: Callable[[], SqlSink], staging: Path | None = None) -> RecordedQuery:
    return RecordedQuery(folder, {SINK: (sink, ID_AND_NAME, tasks_of)}, staging)


class World:
    """A query whose checkpoint has no password, and an operator who has it in his environment."""

    def __init__(
        self,
        database: SqlDatabase,
        folder: Path,
        patch: pytest.MonkeyPatch,
        staging: Path | None = None,
    ) -> None:
        self.database, self.checkpoint = database, folder / "checkpoint"
        self.is_postgres = database.dialect.name == "PostgreSQL"
        self.table = database.table()
        self.query = query(self.checkpoint, lambda: database.sink(self.table), staging)
        variable = "PGPASSWORD" if self.is_postgres else "MYSQL_PWD"
        patch.setenv(variable, database.server.password)

    def rows(self) -> list[tuple[int, str]]:
        return sorted(self.database.rows(f"SELECT id, name FROM {self.table}"))


def test_a_database_without_a_trace_of_the_query_gets_nothing(
    database: SqlDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a script takes its server from the environment, and the operator's has another one.
    The rows stay staged for the right one.
    """
    world = World(database, tmp_path, monkeypatch)
    world.query.run([0, 1], dies_after_decision=True)
    make_elsewhere = "CREATE SCHEMA elsewhere" if world.is_postgres else "CREATE DATABASE elsewhere"
    database.run(make_elsewhere)
    try:
        database.run(f"CREATE TABLE elsewhere.{world.table} (id bigint, name varchar(50))")
        away = database.sink(f"elsewhere.{world.table}")
        query(tmp_path / "n", lambda: away).run([0])  # makes the ledger
        other = given({SINK: away})
        arguments = ("--checkpoint", world.checkpoint)
        told = transactions("finish", *arguments, *other, status=2).output
        assert "no trace of the query" in told
        assert database.rows(f"SELECT count(*) FROM elsewhere.{world.table}") == [(TASKS * ROWS,)]
        assert len(world.query.staged()) == TASKS
    finally:
        database.run(
            "DROP SCHEMA elsewhere CASCADE" if world.is_postgres else "DROP DATABASE elsewhere"
        )
    transactions("finish", *arguments, status=0)
    assert world.rows() == expected([0, 1])


@contextmanager
def restored(world: World) -> Iterator[str]:
    """The URL of a database as a backup of the query's own gives it back."""
    server, _, name = world.database.url.rpartition("/")
    try:
        if world.is_postgres:
            world.database.close()  # type: ignore[attr-defined]
            with psycopg.connect(f"{server}/template1", autocommit=True) as other:
                other.execute(f"CREATE DATABASE restored TEMPLATE {name}".encode())
        else:
            world.database.run("CREATE DATABASE restored")
            for table in (world.table, "exactum_ledger"):
                world.database.run(f"CREATE TABLE restored.{table} LIKE {table}")
                world.database.run(f"INSERT INTO restored.{table} SELECT * FROM {table}")
        yield f"{server}/restored"
    finally:
        world.database.run("DROP DATABASE IF EXISTS restored" + " (FORCE)" * world.is_postgres)


def test_a_restored_copy_of_the_database(
    database: SqlDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has all that the query's own has, and may be one that nobody reads. What is decided stays
    staged for the right one, and who verifies the copy is told where he looks.
    """
    world = World(database, tmp_path, monkeypatch)
    world.query.run([0, 1])
    world.query.run([2], dies_after_decision=True)
    arguments = ("--checkpoint", world.checkpoint)
    with restored(world) as url:
        other = given({SINK: database.sink(world.table, url)})
        told = transactions("finish", *arguments, *other, status=2).output
        assert "may be a copy" in told and "start the query" in told
        assert len(world.query.staged()) == TASKS
        told = typed("verify", *arguments, *other, "--to", "1", status=0).output
        assert "2 exact" in told and "may be a copy" in told
        assert url.rpartition("@")[2] in told and database.url.rpartition("@")[2] in told
        assert database.server.password not in told
    transactions("finish", *arguments, status=0)
    assert world.rows() == expected([0, 1, 2])
    assert "copy" not in typed("verify", *arguments, status=0).output


@pytest.mark.parametrize("own", [True, False])
def test_a_checkpoint_that_was_moved(
    database: SqlDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """Commands find a staging of its own by what the checkpoint has on file, and else the one in it."""
    world = World(database, tmp_path, monkeypatch, staging=tmp_path / "shared" if own else None)
    world.query.run([0, 1], dies_after_decision=True)
    world.query.folder = world.checkpoint.rename(tmp_path / "moved")
    found = listed(world.query.folder, status=1)
    where = world.query.staging or world.query.folder
    assert len(found) == TASKS and str(where) in found[0]["details"][0]
    transactions("finish", "--checkpoint", world.query.folder, status=0)
    world.query.run([1, 2])
    assert world.rows() == expected([0, 1, 2])
    assert world.query.staged() == []


def test_a_target_that_has_lost_batches_gets_no_later_one(
    database: SqlDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Table and ledger are an older copy, the files of a batch that it lacks are gone, and a decided
    batch waits: were it committed, the ledger would end with it, and no start would miss those
    before.
    """
    world = World(database, tmp_path, monkeypatch)
    world.query.run([0, 1])
    world.query.remove_staged()
    world.query.run([2], dies_after_decision=True)
    database.run("DELETE FROM exactum_ledger WHERE batch_id > 0")
    database.run(f"DELETE FROM {world.table} WHERE id >= 1000")
    arguments = ("--checkpoint", world.checkpoint)
    told = transactions("finish", *arguments, status=2).output
    assert "ends with batch 0, and the decision log has batch 1 as committed there" in told
    assert world.rows() == expected([0])
    with raised(CheckpointRefused, "ENDS_DIFFER", "'out'", 0, "decision log", 1):
        world.query.run([2])


SECRET = "w0rd-of-ours"


@pytest.mark.postgres
def test_a_table_that_the_search_path_finds(postgres: LocalPostgres, tmp_path: Path) -> None:
    """It is in a schema of its own. Commands looked in another, and said that nothing is open."""
    with Database.cleaned(postgres) as database:
        database.run("CREATE SCHEMA app")
        database.run("CREATE TABLE app.orders (id bigint, name text)")
        try:
            url = f"{database.url}?options=-csearch_path%3Dapp"
            own = query(tmp_path / "c", lambda: PostgresSink(url, table="orders"))
            own.run([0, 1], dies_before_decision=True)
            found = listed(own.folder, status=1)
            assert [t["on_record"] for t in found] == ["nothing on record"] * TASKS
            arguments = ("--checkpoint", own.folder, "--json")
            assert len(transactions("abort", *arguments, status=0).json["aborted"]) == TASKS
            assert listed(own.folder, status=0) == []
            assert own.staged() == []
            own.run([1], dies_after_decision=True)
            transactions("finish", "--checkpoint", own.folder, status=0)
            assert database.rows("SELECT count(*) FROM app.orders") == [(24,)]
        finally:
            database.run("DROP SCHEMA app CASCADE")


@pytest.mark.postgres
def test_no_secret_of_postgres_is_on_file(
    postgres: LocalPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a user may write one."""
    with Database.cleaned(postgres) as database:
        parts = urlsplit(database.url)
        settings = f"-c search_path=public --app.token={SECRET} -c app.password={SECRET}"
        monkeypatch.setenv("PGOPTIONS", f"-capp.token={SECRET}")
        password = quote(database.server.password, safe="")
        sink = PostgresSink(
            f"postgresql://{parts.username}:{password}@{parts.hostname}:{parts.port}"
            f"/{postgres.database}?sslpassword={SECRET}&options={quote(settings)}",
            table=database.table(),
            connect={"sslmode": "prefer"},
        )
        own = query(tmp_path / "c", lambda: sink)
        own.run([0], dies_before_decision=True)
        text = newest(own.folder).read_text()
        shown = transactions("list", "--checkpoint", own.folder, status=1).output
        for secret in (SECRET, "app.", database.server.password):
            assert secret not in text and secret not in repr(sink) and secret not in shown
        for sink_url in (
            f"postgresql://a:{SECRET}@h/d?password={SECRET}",
            f"host=h user=a password={SECRET} dbname=d",
        ):
            assert SECRET not in repr(PostgresSink(sink_url, table="t"))


@pytest.mark.mariadb
def test_no_secret_of_mysql_is_on_file(mariadb: LocalMariaDB, tmp_path: Path) -> None:
    """As above."""
    with mysql_server.Database.made(mariadb) as database:
        password = database.server.password
        parts = urlsplit(database.url)
        url = f"mysql://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"
        sink = MySQLSink(
            f"{url}?password={quote(password, safe='')}&ssl_key_password={SECRET}",
            table=database.table(),
            connect={"ssl_disabled": True},
        )
        own = query(tmp_path / "c", lambda: sink)
        own.run([0, 1], dies_before_decision=True)
        text = newest(own.folder).read_text()
        shown = transactions("list", "--checkpoint", own.folder, status=1).output
        for secret in (SECRET, password):
            assert secret not in text and secret not in repr(sink) and secret not in shown
        transactions("abort", "--checkpoint", own.folder, status=0)
        assert own.staged() == []
