"""Spark's workers are reached by Unix domain sockets, in a folder of the process's own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactum.spark.runtime import sockets
from tests.kit.python import python


def test_workers_use_it(spark: SparkSession) -> None:
    """The daemon that forks the session's workers listens in the folder, and a worker has no TCP
    connection.
    """
    folder = spark.conf.get(sockets.FOLDER)
    ((name, tcp),) = spark.sparkContext.parallelize([0], 1).map(lambda _: seen()).collect()
    assert name == folder
    assert tcp == 0


def seen() -> tuple[str, int]:
    """In a worker: the folder of its daemon's socket, and how many of its open files are TCP
    sockets.
    """
    own = {
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{fd}")
    }
    tcp = [
        line.split()[9]
        for file in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]
    ]
    return os.environ["PYTHON_WORKER_FACTORY_SOCK_DIR"], sum(
        f"socket:[{inode}]" in own for inode in tcp
    )


CHILD = """
import os
from exactum.spark.runtime.sockets import FOLDER, socket_settings
folder = socket_settings()[FOLDER]
if os.fork() == 0:
    raise SystemExit
os.wait()
print(folder, oct(os.stat(folder).st_mode))
"""


def test_nobody_else_may_enter_and_nothing_stays() -> None:
    """Somebody who made the folder first could listen in it: it is new for each process."""
    two = [python(CHILD).stdout.split() for _ in range(2)]
    assert len({folder for folder, _ in two}) == 2
    for folder, mode in two:
        assert mode.endswith("700") and not Path(folder).exists()


@pytest.mark.parametrize("name", ["x" * 100, "T"])
def test_a_path_too_long_or_with_capital_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Spark's worker asks for the socket of transformWithState in small letters."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    folder = Path(sockets.socket_settings()[sockets.FOLDER])
    assert folder.parent == Path("/tmp")
    folder.rmdir()


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets.tempfile, "mkdtemp", refused)
    assert sockets.socket_settings() == {}


def refused(**_where: str) -> str:
    raise PermissionError(13, "Permission denied")
