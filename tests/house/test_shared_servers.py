"""The servers that all test processes of a run share."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys

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
os.environ["PYTEST_XDIST_WORKER"] = "gw0"
place = asked(servers.address, "postgres")
print(place.port, place.folder, flush=True)
input()
"""


def place(servers: RunServers, process: str, patch: pytest.MonkeyPatch) -> PostgresPlace:
    patch.setenv("PYTEST_XDIST_WORKER", process)
    found: PostgresPlace = asked(servers.address, "postgres")
    return found


@pytest.mark.slow
def test_processes_have_one_server_and_a_database_each(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = RunServers()
    try:
        one, other = (place(servers, process, monkeypatch) for process in ("gw0", "gw1"))
        assert one.port == other.port and one.database != other.database
        for each in (one, other):
            with psycopg.connect(SharedPostgres(each).url, autocommit=True) as connection:
                connection.execute("CREATE TABLE t (v bigint)")
        for forbidden in ("kill", "pause", "restart", "stop"):
            with pytest.raises(LocalServerError):
                getattr(SharedPostgres(one), forbidden)()
    finally:
        servers.close()
    assert not listens(one.port)


@pytest.mark.slow
def test_none_outlives_a_run_that_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], cwd=ROOT, stdin=-1, stdout=-1, text=True
    ) as owner:
        assert owner.stdout is not None
        port, folder = owner.stdout.readline().split()
        assert listens(int(port))
        owner.send_signal(signal.SIGKILL)
    await_true(lambda: not listens(int(port)), "the server has ended")
    shutil.rmtree(folder)


def test_a_server_that_cannot_start_fails_who_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise LocalServerError("there is no PostgreSQL")

    monkeypatch.setattr("tests.kit.servers.shared.started_postgres", fails)
    servers = RunServers()
    try:
        with raised(LocalServerError, "there is no PostgreSQL"):
            place(servers, "gw0", monkeypatch)
    finally:
        servers.close()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
