"""The class archive: made once, used by every later local session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from exactum.local.archive import MADE_NAME, ClassArchive
from exactum.ops.training import make_class_archive

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
    archive = make_class_archive()
    command = [sys.executable, "-c", SESSION, str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["mapped"], done.stderr[-3000:]


def test_none_is_used_while_none_is_there(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path / "cache" / "spark.jsa")
    assert archive.reading_options() == []
    assert not archive.keep_made(tmp_path), "a JVM that was killed has left nothing"
    assert archive.reading_options() == []


def test_the_first_one_made_is_kept(tmp_path: Path) -> None:
    """A JVM may have it mapped: it is never written again."""
    archive = ClassArchive(tmp_path / "cache" / "spark.jsa")
    for content in ("first", "second"):
        (tmp_path / MADE_NAME).write_text(content)
        assert archive.keep_made(tmp_path)
        assert not (tmp_path / MADE_NAME).exists()
    assert archive.path.read_text() == "first"
    assert [path.name for path in archive.path.parent.iterdir()] == ["spark.jsa"]
    assert f"-XX:SharedArchiveFile={archive.path}" in archive.reading_options()
