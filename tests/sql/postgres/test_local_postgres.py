"""The local PostgreSQL server: it starts, keeps its data through kills, and says how to get it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from exactum.errors import LocalServerError
from tests.kit.servers import postgres
from tests.kit.servers.postgres import LocalPostgres

pytestmark = pytest.mark.postgres


def value(url: str, sql: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


@pytest.mark.deep
def test_it_starts_is_killed_and_keeps_its_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Committed rows and prepared transactions outlive SIGKILL, restart and a new object on the
    same folder.
    """
    folder = Path(f"/tmp/exactum-pg-test-{os.getpid()}")
    try:
        with LocalPostgres(data_dir=folder, settings={"work_mem": "5MB"}) as server:
            assert value(server.url, "SHOW work_mem") == "5MB"
            value(server.url, "CREATE TABLE t AS SELECT 1 AS n")
            with psycopg.connect(server.url) as connection:
                connection.execute("INSERT INTO t VALUES (2)")
                connection.execute("PREPARE TRANSACTION 'mine'")
            first = server.pid
            server.kill()
            assert not server.running
            server.start()
            assert server.pid != first
            assert value(server.url, "SELECT count(*) FROM pg_prepared_xacts") == 1
            server.restart()
            value(server.url, "COMMIT PREPARED 'mine'")
        with LocalPostgres(data_dir=folder) as again:
            assert value(again.url, "SELECT sum(n) FROM t") == 3
            host = {"host": str(again.socket_dir)}
            with psycopg.connect(again.url, **host) as connection:  # type: ignore[arg-type]
                assert connection.execute("SELECT inet_client_addr()").fetchone() == (None,)
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_a_temporary_server_leaves_nothing() -> None:
    """Its folder is gone after stop, and a second stop does nothing."""
    server = LocalPostgres()
    server.start()
    folder = server.folder
    assert folder.exists()
    server.stop()
    server.stop()
    assert not folder.exists()


@pytest.mark.deep
def test_a_stopped_process_answers_nobody_until_resumed() -> None:
    """pause and resume: connections wait meanwhile."""
    with LocalPostgres() as server:
        with psycopg.connect(server.url) as connection:
            server.pause()
            try:
                with pytest.raises(psycopg.OperationalError):
                    psycopg.connect(server.url, connect_timeout=2)
            finally:
                server.resume()
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_wrong_setting_is_told_in_the_servers_words() -> None:
    """A server that cannot start says why."""
    with pytest.raises(LocalServerError, match="no_such_setting"):
        LocalPostgres(settings={"no_such_setting": "1"}).start()


def test_it_dies_with_its_owner() -> None:
    """The owner is killed with SIGKILL; the server goes, too."""
    program = (
        "from tests.kit.servers.postgres import LocalPostgres; import time; server = LocalPostgres(); "
        "server.start(); print(server.pid, server.folder, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid, folder = owner.stdout.readline().split()
    owner.kill()
    owner.communicate()
    try:
        end_s = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < end_s
            time.sleep(0.05)
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


def test_a_missing_package_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No server installed: the error names the package."""
    monkeypatch.setattr(postgres, "INSTALLED", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalServerError, match="apt-get install postgresql"):
        LocalPostgres().start()
