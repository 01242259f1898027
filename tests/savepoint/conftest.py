"""A query with state, on a broker; one over files; and one without state, made by hand."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactum.checkpoint import run_file
from exactum.checkpoint.savepoint import restore
from exactum.local import LocalKafka
from exactum.storage.folder import Folder
from tests.kit.crash import oracle
from tests.kit.files.s3_server import S3Server, s3_server
from tests.kit.savepoint.stateless import Driver, make_checkpoint
from tests.kit.savepoint.totals import Totals
from tests.kit.spark.query import Query


@pytest.fixture
def totals(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> Totals:
    """A query with state over a topic of 120 records; nothing is started yet."""
    source = oracle.Input(topic("in", partitions=3))
    source.produce(kafka.bootstrap_servers, 120)
    return Totals(
        spark, kafka.bootstrap_servers, source, topic("out", partitions=3), tmp_path / "check point"
    )


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a query without state that has completed epochs 0 and 1."""
    make_checkpoint(Folder(tmp_path / "checkpoint"))
    return tmp_path / "checkpoint"


HOLDS = """
import sys
from pathlib import Path
from exactum.checkpoint.run_file import RunFile
from exactum.storage.folder import Folder
run = RunFile(Folder(Path(sys.argv[1])), sys.argv[2], "0", "4.2.0")
run.hold()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def driver(checkpoint: Path) -> Iterator[Driver]:
    with contextlib.ExitStack() as ended:

        def start(incarnation: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", HOLDS, str(checkpoint), incarnation]
            process = ended.enter_context(subprocess.Popen(command, stdin=-1, stdout=-1, text=True))
            ended.callback(process.kill)
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            return process

        yield start


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "ENDING_S", 0.1)
    monkeypatch.setattr(run_file, "POLL_STORE_S", 0.05)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """Each test begins with an empty one."""
    with s3_server("kept") as server:
        yield server


@pytest.fixture(params=["folder", "store"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where everything lies."""
    if request.param == "folder":
        return str(tmp_path)
    server: S3Server = request.getfixturevalue("server")
    server.objects.clear()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return "s3a://bucket"
