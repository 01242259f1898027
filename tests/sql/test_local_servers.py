"""The servers that tests start leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.servers.local_server import LocalServer
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.waiting import await_true

pytestmark = pytest.mark.slow


def gone(pid: int) -> bool:
    """Whether no such process runs; a zombie that nobody has waited for counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.variants(1)  # what kills is of both
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(LocalPostgres, marks=pytest.mark.postgres),
        pytest.param(LocalMariaDB, marks=pytest.mark.mariadb),
    ],
)
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
