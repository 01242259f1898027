"""PostgreSQL: servers, poolers and stagings, each fault made for real."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.kit.doctor.diagnosis import Diagnosis, diagnosed
from tests.kit.servers.postgres import LocalPostgres, as_server_user
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import ID_AND_NAME, tasks_of
from tests.kit.verify.recorded_query import RecordedQuery
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = pytest.mark.postgres


@pytest.fixture
def database(postgres: LocalPostgres) -> Iterator[Database]:
    with Database.cleaned(postgres) as found:
        yield found


def look(url: str, folder: Path, table: str, more: str = "") -> Diagnosis:
    sink = f"exactum.PostgresSink({url!r}, table={table!r}{more})"
    return diagnosed(sinks=sink, folder=folder)


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
    assert found.has("ok", f"{2 * len(query.staged())} files of rows lie there, 0.0 MiB")


def test_a_dead_host(tmp_path: Path) -> None:
    found = look("postgresql://exactum@127.0.0.1:1/exactum", tmp_path, "t")
    assert found.has("error", "127.0.0.1:1", "refused")


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
    assert "fsync=off" in text


def test_a_synchronous_standby_that_is_not_there(poor: LocalPostgres, tmp_path: Path) -> None:
    """Every COMMIT would wait for it; the doctor does not."""
    with psycopg.connect(poor.url, autocommit=True) as connection:

        def name(standbys: str) -> None:
            connection.execute(
                f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'".encode()
            )
            connection.execute("SELECT pg_reload_conf()")
            shown = "SHOW synchronous_standby_names"
            await_true(lambda: connection.execute(shown).fetchone() == (standbys,), "it is set")

        name("nobody")
        try:
            found = look(poor.url, tmp_path, "t")
            assert found.has("error", "synchronous_standby_names", "no standby is connected")
        finally:
            name("")


@contextmanager
def pooler(server: LocalPostgres, folder: Path, mode: str) -> Iterator[str]:
    """A pgbouncer before the server; its URL."""
    from exactum.local.broker import choose_ports

    port = choose_ports().clients
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
        [*as_server_user(), program, "-q", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"postgresql://exactum:{server.password}@127.0.0.1:{port}/{server.database}"

    def answers() -> bool:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            return False
        return True

    try:
        await_true(answers, "pgbouncer answers")
        yield url
    finally:
        process.terminate()
        process.wait(WAIT_MAX_S)


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
