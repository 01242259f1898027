"""LocalMariaDB: it serves, keeps data through kills, leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pymysql
import pytest

from exactum.errors import LocalServerError
from tests.kit.servers import mariadb
from tests.kit.servers.mariadb import LocalMariaDB

pytestmark = pytest.mark.slow


def ask(server: LocalMariaDB, sql: str, **options: object) -> list[tuple[object, ...]]:
    settings: dict[str, object] = {"autocommit": True, **options}
    client = pymysql.connect(  # type: ignore[call-overload]
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        database="exactum",
        **settings,
    )
    with client, client.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def gone(pid: int) -> bool:
    """Whether no such process runs; a zombie that nobody has waited for counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_data_outlive_kill_and_stop(tmp_path: Path) -> None:
    """Committed rows are there after SIGKILL, and after a new object has taken over the folder
    and its password.
    """
    server = LocalMariaDB(data_dir=tmp_path / "data", settings={"max_connections": 17})
    with server:
        ask(server, "CREATE TABLE t (v int)")
        ask(server, "INSERT INTO t VALUES (1)")
        assert ask(server, "SELECT @@max_connections") == [(17,)]
        first = server.pid
        server.kill()
        server.kill()
        assert not server.running
        with pytest.raises(LocalServerError, match="not running"):
            _ = server.pid
        server.restart()
        assert server.pid != first
        assert ask(server, "SELECT v FROM t") == [(1,)]
        server.start()
    assert not server.running
    with LocalMariaDB(data_dir=tmp_path / "data") as other:
        assert ask(other, "SELECT v FROM t") == [(1,)]
        assert other.password == server.password


def test_nothing_is_left_behind() -> None:
    """A temporary folder goes with the server."""
    with LocalMariaDB() as server:
        folder, pid = server.data_dir, server.pid
        assert server.url.startswith(
            f"mysql://exactum:{server.password}@127.0.0.1:{server.port}/exactum"
        )
        assert folder.exists()
        assert "ready for connections" in server.log_tail()
    assert not folder.exists()
    assert gone(pid)
    with pytest.raises(LocalServerError):
        _ = server.data_dir


def test_pause_and_resume(mariadb: LocalMariaDB) -> None:
    """A paused server answers nobody; a resumed one goes on."""
    mariadb.pause()
    try:
        with pytest.raises(pymysql.err.OperationalError):
            ask(mariadb, "SELECT 1", connect_timeout=1, read_timeout=1)
    finally:
        mariadb.resume()
    assert ask(mariadb, "SELECT 1") == [(1,)]


def test_it_dies_with_its_owner(tmp_path: Path) -> None:
    """SIGKILL of the owner takes the server with it."""
    program = (
        "import sys, time; from tests.kit.servers.mariadb import LocalMariaDB; s = "
        "LocalMariaDB(data_dir=sys.argv[1]); s.start(); print(s.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "d")], stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        os.kill(owner.pid, signal.SIGKILL)
    deadline_s = time.monotonic() + 20
    while not gone(pid):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_a_setting_that_is_none(tmp_path: Path) -> None:
    """A server that does not start shows its log."""
    with pytest.raises(LocalServerError, match="no_such_setting|no-such-setting"):
        LocalMariaDB(data_dir=tmp_path / "d", settings={"no_such_setting": 1}).start()


def test_a_missing_server_names_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where MariaDB is not installed, the error says how to install it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mariadb, "_PLACES", ())
    with pytest.raises(LocalServerError, match="apt-get install mariadb-server"):
        LocalMariaDB().start()
