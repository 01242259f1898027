"""A table that only the search path finds, and that nothing secret of a database is on file."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from exactum import MySQLSink, PostgresSink
from exactum.sql.sink import SqlSink
from tests.kit.query_record import newest
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql import mysql_server
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import ID_AND_NAME, tasks_of
from tests.kit.transactions.operator import listed, transactions
from tests.kit.verify.recorded_query import RecordedQuery

SINK = "out"
TASKS = 3
SECRET = "w0rd-of-ours"


def query(folder: Path, sink: SqlSink) -> RecordedQuery:
    return RecordedQuery(folder / "checkpoint", {SINK: (lambda: sink, ID_AND_NAME, tasks_of)})


@pytest.mark.postgres
def test_a_table_that_the_search_path_finds(postgres: LocalPostgres, tmp_path: Path) -> None:
    """It is in a schema of its own. Commands looked in another, and said that nothing is open."""
    with Database.cleaned(postgres) as database:
        database.run("CREATE SCHEMA app")
        database.run("CREATE TABLE app.orders (id bigint, name text)")
        try:
            url = f"{database.url}?options=-csearch_path%3Dapp"
            own = query(tmp_path, PostgresSink(url, table="orders"))
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
        own = query(tmp_path, sink)
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
        own = query(tmp_path, sink)
        own.run([0, 1], dies_before_decision=True)
        text = newest(own.folder).read_text()
        shown = transactions("list", "--checkpoint", own.folder, status=1).output
        for secret in (SECRET, password):
            assert secret not in text and secret not in repr(sink) and secret not in shown
        transactions("abort", "--checkpoint", own.folder, status=0)
        assert own.staged() == []
