"""The class archive: made once, used by every later local session, and no danger to any."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exactum.java.class_archive import MADE_NAME, ClassArchive
from exactum.java.jars import cache_folder
from exactum.spark.runtime import driver_archive
from exactum.spark.startup import archive_maker, class_archive
from tests.kit.spark.own_archive import archive_of_its_own

SHARE_MIN = 0.8
"""Of the classes that a session loads: a list that fits no more is recorded anew."""
SESSION = """
import pathlib, sys, exactum
session = exactum.local_session("archive", master="local[1]", **{
    "spark.exactum.warmWorkers": "false",
    "spark.driver.extraJavaOptions": "-Xlog:class+load:file=" + sys.argv[1],
})
assert session.range(5).count() == 5
"""


def session_in(
    cache: Path, script: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "EXACTUM_CACHE": str(cache), **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def shared_share(log: Path) -> float:
    """How many of the classes of Spark and Java that a JVM has loaded came from an archive."""
    loaded = re.findall(r"source: (shared objects file|jar:|file:|jrt:)", log.read_text())
    return loaded.count("shared objects file") / len(loaded)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    """The one of a cache of the test's own, not made."""
    return archive_of_its_own(tmp_path, monkeypatch)


@pytest.fixture
def made() -> ClassArchive:
    """The common one."""
    found = archive_maker.make()
    assert found is not None
    return found


@pytest.mark.spark
def test_a_session_starts_with_it(made: ClassArchive, tmp_path: Path) -> None:
    """The JVM of a local session takes most of its classes from it."""
    session_in(cache_folder(), SESSION, str(tmp_path / "loaded"))
    assert shared_share(tmp_path / "loaded") > SHARE_MIN


@pytest.mark.spark
@pytest.mark.parametrize("damage", ["cut off", "rotten", "empty", "of another Java"])
def test_a_damaged_one_breaks_no_start(
    made: ClassArchive, archive: ClassArchive, tmp_path: Path, damage: str
) -> None:
    archive.path.parent.mkdir()
    shutil.copyfile(made.path, archive.path)
    size = archive.path.stat().st_size
    with archive.path.open("r+b") as file:
        if damage == "rotten":
            for part in range(1, 200):
                file.seek(size * part // 200)
                file.write(os.urandom(4096))
        elif damage == "of another Java":
            file.seek(0)
            head = file.read(4096)
            file.seek(0)
            file.write(head.replace(b"OpenJDK", b"OtherVM"))
        else:
            file.truncate(size // 2 if damage == "cut off" else 0)
    session_in(archive.path.parents[1], SESSION, str(tmp_path / "loaded"))
    assert shared_share(tmp_path / "loaded") < SHARE_MIN


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (class_archive.ENABLED, "false"),
        (class_archive.OPTIONS, "-Xmx1g"),
        ("spark.driver.extraClassPath", "/nowhere.jar"),
        ("spark.jars", "/nowhere.jar"),
        ("spark.master", "spark://host:7077"),
    ],
)
def test_a_session_that_it_would_not_fit_has_none(name: str, value: str) -> None:
    given = {"spark.master": "local[2]", name: value}
    assert class_archive.archive_for(given) is None


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
