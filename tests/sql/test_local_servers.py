"""The servers that tests start: they serve, keep data through kills, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from tests.kit.servers.local_server import LocalServer
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.waiting import await_true

pytestmark = pytest.mark.slow

KINDS = [
    pytest.param(LocalPostgres, marks=pytest.mark.postgres),
    pytest.param(LocalMariaDB, marks=pytest.mark.mariadb),
]
kinds = pytest.mark.parametrize("kind", KINDS)


def ask(server: LocalServer, sql: str) -> list[tuple[Any, ...]]:
    if isinstance(server, LocalPostgres):
        with psycopg.connect(server.url, autocommit=True, connect_timeout=2) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []
    client = pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password,
        database="exactum", autocommit=True, connect_timeout=2, read_timeout=2,
    )  # fmt: skip
    with client, client.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def gone(pid: int) -> bool:
    """Whether no such process runs; a zombie that nobody has waited for counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.deep
@kinds
def test_data_outlive_kill_and_stop(kind: type[LocalServer], tmp_path: Path) -> None:
    """And a pause, in which it answers nobody; a new object takes over the folder."""
    folder = Path(f"/tmp/exactum-server-test-{os.getpid()}")
    try:
        with kind(data_dir=folder, settings={"max_connections": "37"}) as server:
            ask(server, "CREATE TABLE t (v int)")
            ask(server, "INSERT INTO t VALUES (1)")
            first = server.pid
            server.kill()
            assert not server.running
            server.restart()
            assert server.pid != first
            server.pause()
            try:
                with pytest.raises((psycopg.OperationalError, pymysql.err.OperationalError)):
                    ask(server, "SELECT v FROM t")
            finally:
                server.resume()
            assert ask(server, "SELECT v FROM t") == [(1,)]
        with kind(data_dir=folder) as again:
            assert ask(again, "SELECT v FROM t") == [(1,)]
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


@kinds
def test_it_dies_with_its_owner(kind: type[LocalServer]) -> None:
    """SIGKILL of the owner takes the server with it."""
    program = (
        f"import time; from {kind.__module__} import {kind.__name__} as S; s = S(); s.start(); "
        "print(s.pid, s.url, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline().split()[0])
        os.kill(owner.pid, signal.SIGKILL)
    await_true(lambda: gone(pid), "the server is gone")
