"""The servers that all test processes of a run share."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from exactum.errors import LocalServerError
from tests.kit.environment import ROOT
from tests.kit.errors import raised
from tests.kit.servers.shared import PostgresPlace, RunServers, SharedPostgres, asked
from tests.kit.waiting import await_true

HOLDS = """
import os
from tests.kit.servers.shared import RunServers, asked
servers = RunServers()
for process in ("gw0", "gw1"):
    os.environ["PYTEST_XDIST_WORKER"] = process
    print(*vars(asked(servers.address, "postgres")).values(), flush=True)
input()
"""


@pytest.mark.slow
def test_processes_have_one_server_and_a_database_each_and_none_outlives_a_run_that_is_killed() -> (
    None
):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], cwd=ROOT, stdin=-1, stdout=-1, text=True
    ) as owner:
        assert owner.stdout is not None
        told = [owner.stdout.readline().split() for _ in range(2)]
        one, other = (PostgresPlace(int(p), word, Path(f), name) for p, word, f, name in told)
        assert one.port == other.port and one.database != other.database
        for each in (one, other):
            with psycopg.connect(SharedPostgres(each).url, autocommit=True) as connection:
                connection.execute("CREATE TABLE t (v bigint)")
        for forbidden in ("kill", "pause", "restart", "stop"):
            with pytest.raises(LocalServerError):
                getattr(SharedPostgres(one), forbidden)()
        owner.send_signal(signal.SIGKILL)
    await_true(lambda: not listens(one.port), "the server has ended")
    shutil.rmtree(one.folder)


def test_a_server_that_cannot_start_fails_who_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise LocalServerError("there is no PostgreSQL")

    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    monkeypatch.setattr("tests.kit.servers.shared.started_postgres", fails)
    servers = RunServers()
    try:
        with raised(LocalServerError, "there is no PostgreSQL"):
            asked(servers.address, "postgres")
    finally:
        servers.close()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
