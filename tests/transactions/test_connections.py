"""Commands reach a database as its query does: by the same options, those of TLS and the schema too,
and without any secret on file.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from exactum import MySQLSink, PostgresSink
from exactum.checkpoint.layout import SINKS
from exactum.checkpoint.query_place import QueryPlace
from exactum.ops.targets.access import Access
from exactum.ops.targets.target import targets_of
from exactum.sql.sink import SqlSink
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql import mysql_server
from tests.kit.sql.certificates import make_certificate, serve_tls
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import ID_AND_NAME, tasks_of
from tests.kit.transactions.operator import listed, transactions
from tests.kit.verify.recorded_query import RecordedQuery

SINK = "out"
TASKS = 3
SECRET = "w0rd-of-ours"


def query(folder: Path, sink: SqlSink) -> RecordedQuery:
    return RecordedQuery(folder / "checkpoint", {SINK: (lambda: sink, ID_AND_NAME, tasks_of)})


def rebuilt(folder: Path) -> SqlSink:
    known = QueryPlace.of(folder / "checkpoint").known_sinks()
    (target,) = targets_of(known, Access()).each
    sink = target.required()
    assert isinstance(sink, SqlSink)
    return sink


@pytest.mark.postgres
@pytest.mark.parametrize("by", ["the URL", "the role, and --url"])
def test_a_table_that_the_search_path_finds(
    postgres: LocalPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """It is in a schema of its own. Commands looked in another, and said that nothing is open."""
    with Database.cleaned(postgres) as database:
        database.run("CREATE SCHEMA app")
        database.run("CREATE TABLE app.orders (id bigint, name text)")
        database.run(f"CREATE ROLE writer SUPERUSER LOGIN PASSWORD '{SECRET}'")
        try:
            if by == "the URL":
                url = f"{database.url}?options=-csearch_path%3Dapp"
                monkeypatch.setenv("PGPASSWORD", database.server.password)
            else:
                database.run("ALTER ROLE writer SET search_path = app")
                url = database.server.url_of(database.server.database, "writer", SECRET)
            own = query(tmp_path, PostgresSink(url, table="orders"))
            own.run([0, 1], dies_before_decision=True)
            more = () if by == "the URL" else ("--url", f"{SINK}={database.url}")
            found = listed(own.folder, *more, status=1)
            assert [t["on_record"] for t in found] == ["nothing on record"] * TASKS
            arguments = ("--all-leftovers", "--checkpoint", own.folder, "--json", *more)
            assert len(transactions("abort", *arguments, status=0).json["aborted"]) == TASKS
            assert listed(own.folder, *more, status=0) == []
            assert own.staged() == []
        finally:
            database.run("DROP SCHEMA app CASCADE")
            database.run("DROP ROLE writer")


@pytest.mark.deep
@pytest.mark.postgres
@pytest.mark.parametrize("more", [False, True])
def test_a_server_that_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: bool
) -> None:
    """A query that asks for the server's certificate: its commands do, by --url as well unless that
    says otherwise.
    """
    with LocalPostgres() as server:
        trusted = tmp_path / "ca.pem"
        trusted.write_bytes(serve_tls(server).read_bytes())
        database = Database(server)
        options = f"?sslmode=verify-full&sslrootcert={quote(str(trusted), safe='')}"
        sink = PostgresSink(database.url + options, table=database.table())
        own = query(tmp_path, sink)
        own.run([0], dies_before_decision=True)
        monkeypatch.setenv("PGPASSWORD", server.password)
        url = ("--url", f"{SINK}={database.url}") if more else ()
        assert len(listed(own.folder, *url, status=1)) == TASKS
        trusted.write_bytes(make_certificate(tmp_path)[0].read_bytes())
        refused = transactions("list", "--checkpoint", own.folder, *url, status=2).output
        assert "certificate verify failed" in refused and server.password not in refused
        careless = ("--url", f"{SINK}={database.url}?sslmode=require&sslrootcert=")
        assert len(listed(own.folder, *careless, status=1)) == TASKS
        database.close()


@pytest.mark.postgres
@pytest.mark.parametrize("by", ["the URL", "the environment", "the URL, which has the host"])
def test_a_service(
    postgres: LocalPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Its file is on the query's machine. Messages do not say localhost. Where the host is in the
    URL, and the port is not, commands went to port 5432.
    """
    with Database.cleaned(postgres) as database:
        parts = urlsplit(database.url)
        file = tmp_path / "services"
        file.write_text(
            f"[shop]\nhost={parts.hostname}\nport={parts.port}\ndbname={postgres.database}\n"
            f"user={parts.username}\npassword={parts.password}\n"
        )
        monkeypatch.setenv("PGSERVICEFILE", str(file))
        url = "postgresql://" if by == "the environment" else "postgresql://?service=shop"
        its_host = parts.hostname if by == "the URL, which has the host" else ""
        if by == "the environment":
            monkeypatch.setenv("PGSERVICE", "shop")
        sink = PostgresSink(url.replace("//", f"//{its_host}"), table=database.table())
        where = f"{its_host}:service=shop/".lstrip(":")
        assert f"postgresql://{where}" in repr(sink) and "localhost" not in repr(sink)
        own = query(tmp_path, sink)
        own.run([0], dies_before_decision=True)
        assert database.server.password not in (own.folder / SINKS).read_text()
        monkeypatch.delenv("PGSERVICEFILE")
        monkeypatch.delenv("PGSERVICE", raising=False)
        monkeypatch.setenv("PGPASSWORD", database.server.password)
        assert len(listed(own.folder, status=1)) == TASKS


@pytest.mark.postgres
@pytest.mark.parametrize("by", ["the URL", "the environment"])
def test_a_server_that_may_move(
    postgres: LocalPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """By name, and with all its hosts: after a failover the primary is another of them, or has
    another address. The one that answered at the start was put on file.
    """
    monkeypatch.setenv("PGPASSWORD", postgres.password)
    hosts, ports = "127.0.0.1,localhost", f"1,{postgres.port}"
    url = f"postgresql://exactum@127.0.0.1:1,localhost:{postgres.port}/{postgres.database}"
    if by == "the environment":
        url = f"postgresql://exactum@/{postgres.database}"
        monkeypatch.setenv("PGHOST", hosts)
        monkeypatch.setenv("PGPORT", ports)
    with Database.cleaned(postgres) as database:
        own = query(tmp_path, PostgresSink(url, table=database.table()))
        own.run([0], dies_before_decision=True)
        monkeypatch.delenv("PGHOST", raising=False)
        monkeypatch.delenv("PGPORT", raising=False)
        (on_file,) = json.loads((own.folder / SINKS).read_text())["sinks"]
        connect = json.loads(on_file["where"]["connect"])
        assert (connect["host"], connect["port"]) == (hosts, ports)
        assert "hostaddr" not in connect
        assert len(listed(own.folder, status=1)) == TASKS


@pytest.mark.postgres
def test_no_secret_of_postgres_is_on_file(
    postgres: LocalPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a user may write one; and what is none stays."""
    with Database.cleaned(postgres) as database:
        passfile = tmp_path / "pgpass"
        passfile.write_text(f"*:*:*:*:{database.server.password}\n")
        passfile.chmod(0o600)
        parts = urlsplit(database.url)
        settings = f"-c search_path=public --app.token={SECRET} -c app.password={SECRET}"
        monkeypatch.setenv("PGOPTIONS", f"-capp.token={SECRET}")
        sink = PostgresSink(
            f"postgresql://{parts.username}@{parts.hostname}:{parts.port}/{postgres.database}"
            f"?sslpassword={SECRET}&options={quote(settings)}",
            table=database.table(),
            connect={"sslmode": "prefer", "passfile": str(passfile)},
        )
        own = query(tmp_path, sink)
        own.run([0], dies_before_decision=True)
        text = (own.folder / SINKS).read_text()
        for secret in (SECRET, "app.", database.server.password):
            assert secret not in text and secret not in repr(sink)
        on_file = json.loads(json.loads(text)["sinks"][0]["where"]["connect"])
        assert on_file["options"] == "-csearch_path=public"
        assert on_file["passfile"] == str(passfile)
        shown = transactions("list", "--checkpoint", own.folder, status=1).output
        assert SECRET not in shown and database.server.password not in shown
        other = tmp_path / "other"
        other.write_text("*:*:*:*:wrong\n")
        other.chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(other))
        transactions("list", "--checkpoint", own.folder, status=2)
        for sink_url in (
            f"postgresql://a:{SECRET}@h/d?password={SECRET}",
            f"host=h user=a password={SECRET} dbname=d",
        ):
            assert SECRET not in repr(PostgresSink(sink_url, table="t"))


@pytest.mark.mariadb
def test_no_secret_of_mysql_is_on_file(
    mariadb: LocalMariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above; its commands have the same options."""
    with mysql_server.Database.made(mariadb) as database:
        password = database.server.password
        parts = urlsplit(database.url)
        url = f"mysql://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"
        sink = MySQLSink(
            f"{url}?password={quote(password, safe='')}&ssl_key_password={SECRET}",
            table=database.table(),
            connect={"ssl_disabled": True, "ssl_ca": "/etc/ca.pem"},
        )
        own = query(tmp_path, sink)
        own.run([0, 1], dies_before_decision=True)
        text = (own.folder / SINKS).read_text()
        for secret in (SECRET, password):
            assert secret not in text and secret not in repr(sink)
        monkeypatch.setenv("MYSQL_PWD", password)
        assert len(listed(own.folder, status=1)) == TASKS
        address = rebuilt(tmp_path).address
        assert address.option("ssl_ca") == "/etc/ca.pem"
        assert address.option("ssl_disabled") == "True"
        transactions("abort", "--all-leftovers", "--checkpoint", own.folder, status=0)
        assert own.staged() == []


@pytest.mark.mariadb
def test_a_host_by_an_option(
    mariadb: LocalMariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place on file is the one where the rows went, and commands go there. A sink of another
    host is another one.
    """
    with mysql_server.Database.made(mariadb) as database:
        parts = urlsplit(database.url)
        elsewhere = database.url.replace(f"{parts.hostname}:{parts.port}", "no.such.host.invalid:1")
        own = query(
            tmp_path,
            MySQLSink(
                elsewhere,
                table=database.table(),
                connect={"host": parts.hostname, "port": parts.port},
            ),
        )
        own.run([0], dies_before_decision=True)
        server = f"{parts.hostname}:{parts.port}{parts.path}"
        assert rebuilt(tmp_path).address.where == f"mysql://{parts.username}@{server}"
        monkeypatch.setenv("MYSQL_PWD", database.server.password)
        assert len(listed(own.folder, status=1)) == TASKS
