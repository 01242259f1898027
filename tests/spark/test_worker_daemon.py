"""The daemon of Spark's Python workers, without a JVM: the test is what starts and asks it."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import tempfile

import pytest

from tests.kit.environment import environment

TIMEOUT_S = 30.0


@pytest.mark.slow
def test_an_idle_worker_whose_socket_is_closed_says_nothing() -> None:
    """As Spark closes it after a minute without a task. Spark's own daemon prints a traceback."""
    assert "Traceback" in said_by("pyspark.daemon")
    assert said_by("exactum.spark.startup.daemon") == ""


@pytest.mark.slow
def test_a_worker_imports_nothing_for_its_first_conversions() -> None:
    """Arrow's first one imports pandas, which then is in the memory of every worker."""
    program = (
        "import sys; from exactum.spark.startup import daemon; daemon.warm(); before = set(sys.modules)\n"
        "import pyarrow as pa; pa.array([1]); pa.array(['a']).is_null().to_numpy(zero_copy_only=False)\n"
        "print('pandas' in before, sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.stdout == "True []\n", done.stderr


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
            client.settimeout(TIMEOUT_S)
            client.connect(address)
            worker = os.pidfd_open(int.from_bytes(client.recv(4), "big"))
        ended, _, _ = select.select([worker], [], [], TIMEOUT_S)
        assert ended, "the worker still lives"
        os.close(worker)
        daemon.stdin.close()  # the JVM is gone: the daemon ends
        said = daemon.stderr.read()
        daemon.wait(TIMEOUT_S)
    return said.decode()
