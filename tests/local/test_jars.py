"""The jars: complete, cached, fetched by one process only, and a clear error where that fails."""

from __future__ import annotations

import fcntl
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exactum.errors import LocalServerError
from exactum.java import jars
from exactum.java.program import java_program
from exactum.local import broker, broker_jars, spark_kafka_jars
from tests.kit.errors import raised
from tests.kit.waiting import WAIT_MAX_S

RETRIEVES = 'for last; do :; done; mkdir -p "${last%/*}"; touch "${last%/*}/a.jar"'
CALL_BROKER_JARS = "from exactum.local import broker_jars; print(*broker_jars(), sep='\\n')"


def fake_java(patch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """It is that of JAVA_HOME."""
    patch.setenv("JAVA_HOME", str(folder))
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_spark_jars_are_those_of_the_installed_pyspark() -> None:
    """The connector is of PySpark's own minor line, and nothing that PySpark ships comes twice."""
    names = {jar.name for jar in spark_kafka_jars()}
    line = importlib.metadata.version("pyspark").rpartition(".")[0]
    assert any(name.startswith(f"spark-sql-kafka-0-10_2.13-{line}.") for name in names)
    assert {jars.artifact_name(name) for name in names} >= {
        "kafka-clients",
        "commons-pool2",
        "spark-token-provider-kafka-0-10_2.13",
    }
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    shipped = {jars.artifact_name(jar.name) for jar in Path(spec.origin).parent.glob("jars/*.jar")}
    assert not shipped & {jars.artifact_name(name) for name in names}


def test_cached_jars_exist_and_need_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was retrieved once is given again at once, without Java or a network."""
    first = broker_jars()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "")
    assert broker_jars() == first
    assert any(jar.name == f"kafka_2.13-{broker.KAFKA_VERSION}.jar" for jar in first)
    assert all(jar.is_file() for jar in first)


def test_missing_java_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java and without a cache the error says what to install."""
    monkeypatch.setenv("EXACTUM_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "")
    with raised(LocalServerError, "java", "PATH", "JAVA_HOME"):
        broker_jars()


def test_a_java_home_without_java_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although there is a Java on the PATH: Spark runs the one of JAVA_HOME."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert java_program("java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with raised(LocalServerError, f"JAVA_HOME is {tmp_path}", "bin/java"):
        java_program("java")


@pytest.mark.parametrize(
    ("version", "folder"), [("11.0.20", ""), ("1.8.0_402", "jre"), ("9", "")], ids=str
)
def test_an_old_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, folder: str
) -> None:
    """Before a JVM is started, which would only say that it does not know Spark's classes."""
    fake_java(monkeypatch, tmp_path / folder, "exit 1")
    (tmp_path / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    place = tmp_path / folder / "bin" / "java"
    with raised(LocalServerError, f"{place} is of Java {version}", "Java 17"):
        java_program("java")


@pytest.mark.parametrize("release", ['JAVA_VERSION="17.0.15"', 'JAVA_VERSION="25"', "X=1", None])
def test_another_java_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str | None
) -> None:
    """One that is new enough, and one whose files do not say."""
    fake_java(monkeypatch, tmp_path, "exit 1")
    if release is not None:
        (tmp_path / "release").write_text(release)
    assert java_program("java") == str(tmp_path / "bin" / "java")


def test_no_pyspark_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jars are fetched by PySpark's Ivy, also where only a broker is wanted."""
    fake_java(monkeypatch, tmp_path, "exit 1")
    monkeypatch.setenv("EXACTUM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with raised(LocalServerError, "pyspark", "pip install 'exactum[spark]'"):
        broker_jars()


def test_failed_retrieval_is_explained_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The error carries Ivy's last lines and what to try, and no half-finished set is ever seen."""
    fails = f"{RETRIEVES}; echo 'unresolved dependency: all of them'; exit 1"
    fake_java(monkeypatch, tmp_path / "java", fails)
    monkeypatch.setenv("EXACTUM_CACHE", str(tmp_path / "cache"))
    with raised(LocalServerError, "unresolved dependency: all of them", "EXACTUM_IVY_SETTINGS"):
        broker_jars()
    assert str(tmp_path / "cache") in capfd.readouterr().err
    left = [path for path in (tmp_path / "cache").rglob("*") if path.suffix != ".lock"]
    assert left == [tmp_path / "cache" / "jars"]


def test_finished_retrieval_appears_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A retrieval that ends well leaves the finished folder and the lock, and nothing else."""
    fake_java(monkeypatch, tmp_path / "java", RETRIEVES)
    monkeypatch.setenv("EXACTUM_CACHE", str(tmp_path / "cache"))
    (found,) = broker_jars()
    assert found.name == "a.jar"
    assert sorted(path.name for path in (tmp_path / "cache" / "jars").iterdir()) == [
        found.parent.name,
        f"{found.parent.name}.lock",
    ]


def test_second_process_waits_for_the_first(tmp_path: Path) -> None:
    """While one process retrieves, another waits and then takes the finished set as it is."""
    folder = tmp_path / "jars" / broker.broker_set().folder_name
    folder.parent.mkdir(parents=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(
            [sys.executable, "-c", CALL_BROKER_JARS],
            env={**os.environ, "EXACTUM_CACHE": str(tmp_path), "PATH": "", "JAVA_HOME": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with second:
            assert second.stderr is not None
            assert "another process" in second.stderr.readline()
            time.sleep(0.2)
            assert second.poll() is None
            folder.mkdir()
            (folder / "first.jar").touch()
            fcntl.flock(lock, fcntl.LOCK_UN)
            output, errors = second.communicate(timeout=WAIT_MAX_S)
    assert output.splitlines() == [str(folder / "first.jar")], errors


@pytest.mark.parametrize(
    ("file_name", "name"),
    [
        ("scala-library-2.13.18.jar", "scala-library"),
        ("log4j-1.2-api-2.25.4.jar", "log4j-1.2-api"),
        ("spark-sql-kafka-0-10_2.13-4.2.0.jar", "spark-sql-kafka-0-10_2.13"),
        ("netty-tcnative-2.0.74.Final-linux-x86_64.jar", "netty-tcnative"),
        ("nameless.jar", "nameless"),
    ],
)
def test_artifact_name(file_name: str, name: str) -> None:
    """A jar's name is what precedes its version."""
    assert jars.artifact_name(file_name) == name
