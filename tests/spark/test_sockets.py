"""Spark's workers are reached by Unix domain sockets, in a folder of the user's own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactum.spark.runtime import sockets


def test_workers_use_it(spark: SparkSession) -> None:
    """The daemon that forks the session's workers listens in the folder, and a worker has no TCP
    connection.
    """
    folder = sockets.private_folder(Path(tempfile.gettempdir()))
    assert spark.conf.get(sockets.FOLDER) == str(folder)
    ((name, tcp),) = spark.sparkContext.parallelize([0], 1).map(lambda _: seen()).collect()
    assert name == str(folder)
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


@pytest.fixture
def short() -> Iterator[Path]:
    """pytest's own folders have paths that are too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="s") as folder:
        yield Path(folder)


def test_nobody_else_may_enter(short: Path) -> None:
    folder = sockets.private_folder(short)
    assert folder is not None and folder.stat().st_mode & 0o777 == 0o700
    assert sockets.private_folder(short) == folder


@pytest.mark.parametrize("mode", [0o750, 0o707])
def test_a_folder_of_others_is_not_taken(short: Path, mode: int) -> None:
    """Somebody who made the folder first could listen in it."""
    made = sockets.private_folder(short)
    assert made is not None
    made.chmod(mode)
    assert sockets.private_folder(short) is None


def test_a_link_is_not_taken(short: Path) -> None:
    (short / "elsewhere").mkdir(mode=0o700)
    (short / f"exactum-sockets-{os.getuid()}").symlink_to(short / "elsewhere")
    assert sockets.private_folder(short) is None


def test_a_path_too_long_or_not_to_be_made(short: Path) -> None:
    assert sockets.private_folder(short / ("x" * 100)) is None
    assert sockets.private_folder(short / "missing") is None
