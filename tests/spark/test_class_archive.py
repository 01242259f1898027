"""The class archive: of what it is, for which sessions, and no danger to any. That a session takes
its classes from it is in ``test_class_path``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from exactum.java.jars import MADE_NAME, ClassArchive, cache_folder
from exactum.spark.runtime.spark_jars import spark_kafka_jars
from exactum.spark.startup import class_archive
from tests.kit.python import python

RECORDED = """
import exactum
session = exactum.local_session("recorded", master="local[1]", spark_sql_shuffle_partitions=1)
assert "sharing" in session._jvm.System.getProperty("java.vm.info")
assert session.range(5).groupBy("id").count().mapInArrow(lambda each: each, "id long, n long").count() == 5
session.stop()
"""


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    """The one of a cache of the test's own, with the jars of the common one; not made."""
    spark_kafka_jars()  # they may not have been retrieved yet
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "jars").symlink_to(cache_folder() / "jars")
    monkeypatch.setenv("EXACTUM_CACHE", str(cache))
    return class_archive.spark_archive()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """One item for each process that was started to make an archive; none is."""
    started: list[Any] = []
    monkeypatch.setattr(class_archive.subprocess, "Popen", lambda *a, **k: started.append(a))
    monkeypatch.setattr(class_archive, "CGROUP_LIMIT", tmp_path / "memory.max")
    monkeypatch.setenv("CI", "")
    return started


@pytest.mark.deep
@pytest.mark.spark
def test_a_flight_recorder_looks_at_every_class(tmp_path: Path) -> None:
    """So do agents, as those of tracing and of metrics. A class in the archive that has no class
    file would end the JVM with SIGSEGV.
    """
    recorder = f"-XX:StartFlightRecording=filename={tmp_path / 'recorded.jfr'}"
    # Its output is read to the end: the JVM, which has it too, may end after Python.
    done = python(RECORDED, cwd=tmp_path, SPARK_SUBMIT_OPTS=f"-XX:+UseSerialGC {recorder}")
    assert "Started recording" in done.stdout


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (class_archive.ENABLED, "false"),
        (class_archive.OPTIONS, "-Xmx1g"),
        ("spark.driver.extraClassPath", "/nowhere.jar"),
        ("spark.jars", "/nowhere.jar"),
        ("spark.master", "spark://host:7077"),
        ("spark.driver.extraJavaOptions", "-XX:+UseZGC"),
        ("spark.driver.extraJavaOptions", "-Xmx1g -Xshare:off"),
        ("spark.driver.extraJavaOptions", "-XX:AOTCache=mine"),
    ],
)
def test_a_session_that_it_would_not_fit_has_none(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)  # as before any session
    given = {"spark.master": "local[2]"}
    assert class_archive.archive_for(given) is not None
    assert class_archive.archive_for({**given, name: value}) is None


@pytest.mark.parametrize("name", class_archive.JAVA_OPTIONS)
def test_options_of_the_environment_count_as_well(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)  # as before any session
    given = {"spark.master": "local[2]"}
    assert class_archive.archive_for(given) is not None
    monkeypatch.setenv(name, "-XX:SharedArchiveFile=/mine.jsa")
    assert class_archive.archive_for(given) is None


@pytest.mark.spark
@pytest.mark.parametrize(
    ("memory_max", "ci", "made"), [("max", "", 1), ("max", "true", 0), ("1073741824", "", 0)]
)
def test_a_session_that_misses_it_has_it_made(
    archive: ClassArchive,
    asked: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    memory_max: str,
    ci: str,
    made: int,
) -> None:
    """By a process of its own; not on a machine of a CI run, which is seldom used twice, nor where
    the container's memory is limited.
    """
    class_archive.CGROUP_LIMIT.write_text(memory_max)
    monkeypatch.setenv("CI", ci)
    assert class_archive.start_options(archive) == []
    assert len(asked) == made


@pytest.mark.spark
def test_one_that_is_being_made_is_not_made_twice(archive: ClassArchive, asked: list[Any]) -> None:
    """Unless it takes too long for that: a process that was killed leaves its folder behind."""
    making = archive.path.parent / f".{archive.path.stem}-xyz"
    making.mkdir(parents=True)
    class_archive.start_options(archive)
    assert not asked
    os.utime(making, (1, 1))
    class_archive.start_options(archive)
    assert len(asked) == 1


def test_the_first_one_made_is_kept(tmp_path: Path) -> None:
    """A JVM may have it mapped: it is never written again. None is used while none is there."""
    kept = ClassArchive(tmp_path / "cache" / "spark.jsa")
    assert not kept.keep_made(tmp_path), "a JVM that was killed has left nothing"
    assert kept.reading_options() == []
    for content in ("first", "second"):
        (tmp_path / MADE_NAME).write_text(content)
        assert kept.keep_made(tmp_path)
        assert not (tmp_path / MADE_NAME).exists()
    assert kept.path.read_text() == "first"
    assert [path.name for path in kept.path.parent.iterdir()] == ["spark.jsa"]
    options = class_archive.start_options(kept)
    assert f"-XX:SharedArchiveFile={kept.path}" in options
    assert class_archive.VERIFIED in options, "a JVM that takes a damaged one crashes"


def test_jars_that_were_installed_again_have_another_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM would not take the old one, and would not say so."""
    jar = tmp_path / "spark.jar"
    jar.write_bytes(b"")
    monkeypatch.setattr(class_archive, "pyspark_jars", lambda: tmp_path)
    before = class_archive.spark_archive().path
    assert class_archive.spark_archive().path == before
    os.utime(jar, (1, 1))
    assert class_archive.spark_archive().path != before
