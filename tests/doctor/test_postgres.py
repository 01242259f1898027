"""PostgreSQL: servers, poolers, tables and decision logs, each fault made for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from exactum.sql.dialect import Role
from exactum.sql.table import TableName
from tests.kit.doctor.diagnosis import Diagnosis, diagnosed
from tests.kit.servers.postgres import LocalPostgres, _as_server_user
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import ID_AND_NAME, tasks_of
from tests.kit.verify.recorded_query import RecordedQuery

pytestmark = pytest.mark.postgres

WAIT_S = 20.0


@pytest.fixture
def database(postgres: LocalPostgres) -> Iterator[Database]:
    with Database.cleaned(postgres) as found:
        yield found


def look(url: str, folder: Path, table: str, more: str = "") -> Diagnosis:
    sink = f"exactum.PostgresSink({url!r}, table={table!r}{more})"
    return diagnosed(sinks=sink, folder=folder)


def objects(database: Database) -> set[tuple[str, str]]:
    """Every table, index and sequence of users."""
    found: list[tuple[str, str]] = database.rows(
        "SELECT n.nspname::text, relname::text FROM pg_class c JOIN pg_namespace n ON "
        "n.oid = relnamespace WHERE nspname NOT LIKE 'pg_%' AND nspname <> 'information_schema'"
    )
    return set(found)


def test_a_healthy_server_has_no_errors_and_nothing_is_left(
    database: Database, tmp_path: Path
) -> None:
    table = database.table("id bigint PRIMARY KEY, name text")
    before = objects(database)
    found = look(database.url, tmp_path, table, ", mode='upsert', key='ID', delete_when='gone'")
    assert found.all_is_well(), found.output
    assert found.has("ok", f"PostgresSink('{table}')", "can be written")
    assert found.has("ok", "A COMMIT takes")
    assert found.has("ok", "clock of the server")
    log = diagnosed("--decision-log", database.url)
    assert log.all_is_well(), log.output
    assert log.has("ok", "decision log", "can be created")
    assert objects(database) == before


@pytest.mark.parametrize(
    ("columns", "more", "text"),
    [
        ("id bigint, name text", ", mode='upsert', key='id'", "needs a primary key or a unique"),
        ("UNLOGGED", "", "UNLOGGED"),
        ("", "", "There is no table"),
        ("", ", create_table=True", ""),
    ],
    ids=["no key", "unlogged", "missing", "to be created"],
)
def test_what_is_wrong_with_a_table(
    database: Database, tmp_path: Path, columns: str, more: str, text: str
) -> None:
    table = "missing"
    if columns == "UNLOGGED":
        table = "unlogged"
        database.run("CREATE UNLOGGED TABLE unlogged (id bigint)")
    elif columns:
        table = database.table(columns)
    found = look(database.url, tmp_path, table, more)
    if text:
        assert found.has("error", f"PostgresSink('{table}')", text)
    else:
        assert found.all_is_well(), found.output


@pytest.fixture
def clerk(database: Database) -> Iterator[str]:
    """The URL of a user who may connect, and read nothing."""
    database.run("CREATE ROLE clerk LOGIN PASSWORD 'clerks'")
    try:
        yield database.server.url_of(database.server.database, "clerk", "clerks")
    finally:
        database.run("DROP OWNED BY clerk")
        database.run("DROP ROLE clerk")


def test_rights_that_are_missing(database: Database, clerk: str, tmp_path: Path) -> None:
    """One after the other is granted."""
    table = database.table("id bigint PRIMARY KEY, name text")
    upsert = ", mode='upsert', key='id'"
    found = look(clerk, tmp_path, table, upsert)
    assert found.has("error", table, "no SELECT, INSERT, UPDATE on")
    database.run(f"GRANT SELECT, INSERT, UPDATE ON {table} TO clerk")
    found = look(clerk, tmp_path, table, upsert)
    assert found.has("error", table, "may not create tables beside")
    log = diagnosed("--decision-log", clerk)
    assert log.has("error", "decision log", "may not create them")
    database.run("GRANT CREATE ON SCHEMA public TO clerk")
    assert look(clerk, tmp_path, table, upsert).all_is_well()
    assert diagnosed("--decision-log", clerk).all_is_well()


def test_tables_that_an_administrator_has_made(
    database: Database, clerk: str, tmp_path: Path
) -> None:
    """Without CREATE: the ledger and the decision log, and the rights on them."""
    table = database.table()
    files = database.files("somebody")
    files.open()
    files.close()
    session = database.dialect.connect(database.address, Role.DRIVER, "a test", 5.0)
    database.dialect.create_own_tables(session, TableName("public", table))
    session.close()
    database.run(f"GRANT INSERT ON {table} TO clerk")
    database.run("GRANT SELECT ON exactum_ledger TO clerk")
    assert look(clerk, tmp_path, table).has("error", table, "no INSERT, DELETE on exactum_ledger")
    database.run("GRANT INSERT, DELETE ON exactum_ledger TO clerk")
    assert look(clerk, tmp_path, table).has("ok", table, "exactum_ledger is there")
    assert diagnosed("--decision-log", clerk).has("error", "cannot be recorded")
    database.run("GRANT ALL ON exactum_decisions, exactum_decision_logs TO clerk")
    found = diagnosed("--decision-log", clerk)
    assert found.all_is_well(), found.output
    assert found.has("ok", "decision log", "a second one was refused")
    assert database.value("SELECT count(*) FROM exactum_decisions") == 0
    assert database.value("SELECT count(*) FROM exactum_decision_logs") == 1


def test_temporary_tables_that_are_not_allowed(
    database: Database, clerk: str, tmp_path: Path
) -> None:
    """An upsert needs one; who appends does not."""
    table = database.table("id bigint PRIMARY KEY, name text")
    name = database.server.database
    database.run(f"GRANT SELECT, INSERT, UPDATE ON {table} TO clerk")
    database.run("GRANT CREATE ON SCHEMA public TO clerk")
    database.run(f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
    try:
        found = look(clerk, tmp_path, table, ", mode='upsert', key='id'")
        assert found.has("error", table, "may not create temporary tables")
        (mend,) = [each["mend"] for each in found.findings if "temporary" in each["what"]]
        assert mend == f"GRANT TEMPORARY ON DATABASE {name} TO clerk."
        assert look(clerk, tmp_path, table).all_is_well()
        database.run(mend.rstrip("."))
        assert look(clerk, tmp_path, table, ", mode='upsert', key='id'").all_is_well()
    finally:
        database.run(f"GRANT TEMPORARY ON DATABASE {name} TO PUBLIC")


def test_a_decision_log_without_its_key(database: Database) -> None:
    """Two records for one slot: two drivers would both believe theirs."""
    files = database.files("somebody")
    files.open()
    files.close()
    database.run("ALTER TABLE exactum_decisions DROP CONSTRAINT exactum_decisions_pkey")
    found = diagnosed("--decision-log", database.url)
    assert found.has("error", "decision log", "takes two records for one slot")


@pytest.mark.parametrize("given", [False, True])
def test_the_staging_of_a_query_that_ran(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    """It is found by what the checkpoint has on file, with what waits in it."""
    monkeypatch.setenv("PGPASSWORD", database.server.password)
    table = database.table()
    sinks = {"out": (lambda: database.sink(table), ID_AND_NAME, tasks_of)}
    staging = tmp_path / "shared" if given else None
    query = RecordedQuery(tmp_path / "checkpoint", sinks, staging)
    query.run([0, 1], dies_after_decision=True)
    found = diagnosed("--checkpoint", str(query.folder))
    assert found.all_is_well(), found.output
    assert found.has("ok", f"staging: {staging or query.folder / 'exactum/staging'} belongs to")
    assert found.has("ok", f"staging: {2 * len(query.staged())} files of rows lie there, 0.0 MiB")


def test_a_wrong_password_and_a_dead_host(database: Database, tmp_path: Path) -> None:
    """At once, and no password is shown."""
    wrong = database.server.url_of(database.server.database, "exactum", "guessed-staple")
    found = look(wrong, tmp_path, "t")
    assert found.has("error", "postgresql://exactum@", "password authentication failed")
    assert "guessed-staple" not in found.output
    began_s = time.monotonic()
    found = look("postgresql://exactum@127.0.0.1:1/exactum", tmp_path, "t")
    assert found.has("error", "127.0.0.1:1", "refused")
    assert time.monotonic() - began_s < WAIT_S


# ---- a server with everything wrong, and a pooler before it ------------------------------------


@pytest.fixture(scope="module")
def poor() -> Iterator[LocalPostgres]:
    """It does not fsync."""
    with LocalPostgres(settings={"fsync": "off"}) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id bigint PRIMARY KEY)")
        yield server


def test_a_server_that_keeps_nothing(poor: LocalPostgres, tmp_path: Path) -> None:
    (text,) = look(poor.url, tmp_path, "t").told("error")
    assert "fsync is off" in text


def test_a_synchronous_standby_that_is_not_there(poor: LocalPostgres, tmp_path: Path) -> None:
    """Every COMMIT would wait for it; the doctor does not."""
    with psycopg.connect(poor.url, autocommit=True) as connection:

        def name(standbys: str) -> None:
            connection.execute(
                f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'".encode()
            )
            connection.execute("SELECT pg_reload_conf()")
            end_s = time.monotonic() + WAIT_S
            while connection.execute("SHOW synchronous_standby_names").fetchone() != (standbys,):
                assert time.monotonic() < end_s
                time.sleep(0.02)

        name("nobody")
        try:
            began_s = time.monotonic()
            found = look(poor.url, tmp_path, "t")
            assert time.monotonic() - began_s < WAIT_S
            assert found.has("error", "synchronous_standby_names", "no standby is connected")
        finally:
            name("")


@contextmanager
def pooler(server: LocalPostgres, folder: Path, mode: str) -> Iterator[str]:
    """A pgbouncer before the server; its URL."""
    from exactum.local.settings import choose_ports

    port = choose_ports(1, 0)[0].clients
    users = folder / "users.txt"
    users.write_text(f'"exactum" "{server.password}"\n')
    config = folder / "pgbouncer.ini"
    config.write_text(
        "[databases]\n"
        f"* = host=127.0.0.1 port={server.port} user=exactum password={server.password}\n"
        "[pgbouncer]\nlisten_addr = 127.0.0.1\nunix_socket_dir =\n"
        f"listen_port = {port}\nauth_type = plain\nauth_file = {users}\npool_mode = {mode}\n"
        "default_pool_size = 5\nignore_startup_parameters = extra_float_digits\n"
    )
    for path in (folder, users, config):
        path.chmod(0o755)
    for parent in folder.parents:
        if parent.owner() == "root" and parent != Path("/") and os.geteuid() == 0:
            parent.chmod(parent.stat().st_mode | 0o011)
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    process = subprocess.Popen(
        [*_as_server_user(), program, "-q", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"postgresql://exactum:{server.password}@127.0.0.1:{port}/{server.database}"
    try:
        end_s = time.monotonic() + WAIT_S
        while True:
            try:
                psycopg.connect(url).close()
                break
            except psycopg.OperationalError:
                assert time.monotonic() < end_s, "pgbouncer does not answer"
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(WAIT_S)


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_pooler_in_the_way(
    poor: LocalPostgres, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, mode: str
) -> None:
    """One that lends a connection for each transaction loses what a session sets."""
    with pooler(poor, tmp_path_factory.mktemp("bouncer"), mode) as url:
        found = look(url, tmp_path, "t")
    if mode == "transaction":
        assert found.has("error", "A pooler is in between that lends")
    else:
        assert found.has("ok", "A pooler is in between, and keeps")
