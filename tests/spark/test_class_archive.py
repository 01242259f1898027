"""The class archive: made once, used by every later local session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exactum.java.class_archive import MADE_NAME, ClassArchive
from exactum.ops.training import make_class_archive
from exactum.spark.runtime import driver_archive

SESSION = """
import os, pathlib, sys, exactum
from pyspark import SparkContext
session = exactum.local_session("archive", master="local[1]", **{"spark.exactum.warmWorkers": "false"})
jvm = session._jvm.java.lang.ProcessHandle.current().pid()
print("mapped" if sys.argv[1] in pathlib.Path(f"/proc/{jvm}/maps").read_text() else "not mapped")
"""


@pytest.mark.spark
def test_a_session_starts_with_it() -> None:
    """The JVM of a local session has the archive in its memory."""
    made = make_class_archive()
    command = [sys.executable, "-c", SESSION, str(made)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["mapped"], done.stderr[-3000:]


def test_none_is_used_while_none_is_there(tmp_path: Path) -> None:
    kept = ClassArchive(tmp_path / "cache" / "spark.jsa")
    assert kept.reading_options() == []
    assert not kept.keep_made(tmp_path), "a JVM that was killed has left nothing"
    assert kept.reading_options() == []


def test_the_first_one_made_is_kept(tmp_path: Path) -> None:
    """A JVM may have it mapped: it is never written again."""
    kept = ClassArchive(tmp_path / "cache" / "spark.jsa")
    for content in ("first", "second"):
        (tmp_path / MADE_NAME).write_text(content)
        assert kept.keep_made(tmp_path)
        assert not (tmp_path / MADE_NAME).exists()
    assert kept.path.read_text() == "first"
    assert [path.name for path in kept.path.parent.iterdir()] == ["spark.jsa"]
    assert f"-XX:SharedArchiveFile={kept.path}" in kept.reading_options()


def test_jars_that_were_installed_again_have_another_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM would not take the old one, and would not say so."""
    jar = tmp_path / "spark.jar"
    jar.write_bytes(b"")
    monkeypatch.setattr(driver_archive, "pyspark_jars", lambda: tmp_path)
    before = driver_archive.spark_archive().path
    assert driver_archive.spark_archive().path == before
    os.utime(jar, (1, 1))
    assert driver_archive.spark_archive().path != before
