"""The daemon of Spark's Python workers, mostly without a JVM: the test is what starts and asks it."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from exactum.spark.startup.daemon import ZIPS
from tests.kit.environment import environment, python_path
from tests.kit.python import python
from tests.kit.waiting import WAIT_MAX_S

DRAWS = """
import os, numpy.random
from exactum.spark.startup.daemon import warm
warm()
for _ in range(2):
    if os.fork() == 0:
        print(numpy.random.randint(2**62), flush=True)
        os._exit(0)
    os.wait()
"""


def test_workers_draw_their_own_random_numbers() -> None:
    """Also where NumPy had its own before they were forked."""
    drawn = python(DRAWS).stdout.split()
    assert len(drawn) == len(set(drawn)) == 2


@pytest.mark.slow
def test_an_idle_worker_whose_socket_is_closed_says_nothing() -> None:
    """As Spark closes it after a minute without a task. Spark's own daemon prints a traceback."""
    assert "Traceback" in said_by("pyspark.daemon")
    assert said_by("exactum.spark.startup.daemon") == ""


def said_by(module: str) -> str:
    """What a daemon prints on stderr while a worker of it is asked for and left."""
    # A socket's path holds 107 bytes, and the daemon's name for it takes 42: pytest's is too long.
    with tempfile.TemporaryDirectory() as folder:
        return said_beside(module, folder)


def said_beside(module: str, folder: str) -> str:
    env = environment(
        PYTHON_UNIX_DOMAIN_ENABLED="true",
        PYTHON_WORKER_FACTORY_SOCK_DIR=folder,
        PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE="1",  # as Spark sets it
        SPARK_REUSE_WORKER="1",
    )
    with subprocess.Popen(
        [sys.executable, "-m", module, "pyspark.worker"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdout is not None
        assert daemon.stderr is not None
        assert daemon.stdin is not None
        address = daemon.stdout.read(int.from_bytes(daemon.stdout.read(4), "big"))
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(WAIT_MAX_S)
            client.connect(address)
            worker = os.pidfd_open(int.from_bytes(client.recv(4), "big"))
        ended, _, _ = select.select([worker], [], [], WAIT_MAX_S)
        assert ended, "the worker still lives"
        os.close(worker)
        daemon.stdin.close()  # the JVM is gone: the daemon ends
        said = daemon.stderr.read()
        daemon.wait(WAIT_MAX_S)
    return said.decode()


WHERE = """
import sys
from exactum.spark.startup import daemon
daemon.leave_zips()
import pyspark
print(pyspark.__file__)
print([entry for entry in sys.path_importer_cache if daemon.ZIPS.search(entry)])
"""


def imported(*path: str) -> list[str]:
    """Where a daemon with this at the front of its path imports PySpark from, and what it keeps
    of zips.
    """
    whole = os.pathsep.join((*path, python_path()))
    return python(WHERE, PYTHONPATH=whole).stdout.splitlines()


def test_pyspark_is_imported_from_where_it_is_installed(spark: SparkSession) -> None:
    """Workers' path begins with Spark's zips, in which nothing is compiled."""
    paths = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ["PYTHONPATH"])
    (path,) = paths.collect()
    zips = [entry for entry in path.split(os.pathsep) if ZIPS.fullmatch(Path(entry).name)]
    assert {Path(entry).suffix for entry in zips} == {".zip", ".jar"}, "as Spark starts workers"
    assert imported(*zips) == [pyspark.__file__, "[]"]


def test_another_pyspark_in_the_zip_is_left_there(tmp_path: Path) -> None:
    """On a cluster, Spark's own is the one that works with its JVM."""
    place = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(place, "w") as packed:
        packed.writestr("pyspark/__init__.py", "")
        packed.writestr("pyspark/version.py", '__version__ = "4.0.99"\n')
    assert imported(str(place)) == [f"{place}/pyspark/__init__.py", f"['{place}']"]
