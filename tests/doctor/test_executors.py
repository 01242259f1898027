"""What executors see: a job of real Spark, and answers of machines that see something else."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactum.ops.doctor.executor_task import ExecutorSeen, ExecutorTask
from exactum.ops.doctor.executors import judged
from exactum.ops.doctor.finding import DoctorFinding, Level
from tests.kit.doctor.diagnosis import diagnosed, tree

pytestmark = pytest.mark.spark


def test_a_job_looks_from_the_executors(spark: SparkSession, tmp_path: Path) -> None:
    """In the session that runs, which goes on; nothing is left in the folders."""
    out = tmp_path / "out"
    sinks = (
        f"exactum.FileSink({str(out)!r}), exactum.WriteAheadSink({str(tmp_path / 'wal')!r}, print)"
    )
    sinks += ", exactum.MySQLSink('mysql://u@127.0.0.1:1/d', table='t')"
    before = tree(tmp_path) | {"my_sinks.py"}
    found = diagnosed("--executors", sinks=sinks, folder=tmp_path)
    told = [text for text in found.told("error") if text.startswith("executors")]
    assert len(told) == 1, told
    assert "cannot reach 127.0.0.1:1" in told[0]
    compiled = {path for path in tree(tmp_path) if path.startswith("__pycache__")}
    assert tree(tmp_path) - compiled == before
    assert spark.range(3).count() == 3


@pytest.fixture
def seen() -> ExecutorSeen:
    task = ExecutorTask((), ())
    return task.look(0)


def judgement(seen: ExecutorSeen, task: ExecutorTask | None = None) -> list[DoctorFinding]:
    return list(judged([seen], task or ExecutorTask((), ())))


def test_a_machine_that_sees_all_is_well(seen: ExecutorSeen, tmp_path: Path) -> None:
    (tmp_path / "driver").touch()
    task = ExecutorTask((str(tmp_path),), ())
    (found,) = judgement(task.look(3), task)
    assert found.level is Level.OK
    assert socket.gethostname() in found.what


def test_a_folder_that_another_machine_does_not_share(seen: ExecutorSeen, tmp_path: Path) -> None:
    """What the driver wrote is not there; or what the task wrote is not here."""
    (tmp_path / "mine").mkdir()
    task = ExecutorTask((str(tmp_path / "mine"),), ())
    (unseen,) = judgement(task.look(0), task)
    assert unseen.level is Level.ERROR
    assert f"does not see what the driver has written into {tmp_path}" in unseen.what
    (lost,) = judgement(replace(seen, written=(str(tmp_path / "mine" / "gone"),)))
    assert lost.level is Level.ERROR
    assert "The driver does not see" in lost.what
    assert os.path.join(str(tmp_path)) in lost.what


def test_other_versions(seen: ExecutorSeen) -> None:
    levels = {f.what: f.level for f in judgement(replace(seen, exactum="0.0.1", python="3.9.1"))}
    assert sorted(levels.values(), key=str) == [Level.ERROR, Level.WARNING]
    assert any("exactum 0.0.1" in what for what in levels)
    assert any("Python 3.9.1" in what for what in levels)
