"""The jars that the wheel carries are what their sources compile to: who reads the sources has read
the jars.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from exactum.java.jars import pyspark_jars
from exactum.java.program import java_program
from exactum.spark.runtime.spark_jars import (
    CHECKPOINT_FS,
    CHECKPOINT_FS_JAR,
    COLUMNAR_KAFKA_JAR,
    FORMAT,
)
from tests.kit.spark.java_classes import class_path, compiled, kept_and_compiled, sources_of
from tests.kit.waiting import WAIT_MAX_S

KIT = Path(__file__).parents[1] / "kit" / "spark"
PROBE, TWO_DRIVERS = KIT / "HeldRecords.java", KIT / "TwoDrivers.java"


@pytest.mark.parametrize(
    ("jar", "made", "has"),
    [
        (CHECKPOINT_FS_JAR, "make checkpoint-jar", CHECKPOINT_FS),
        (COLUMNAR_KAFKA_JAR, "make columnar-jar", FORMAT),
    ],
    ids=["checkpoint-fs", "columnar-kafka"],
)
def test_it_is_made_of_its_sources(tmp_path: Path, jar: Path, made: str, has: str) -> None:
    """Run what ``make`` has for it where this fails."""
    ours, theirs = kept_and_compiled(jar, sources_of(jar), tmp_path)
    assert f"{has.replace('.', '/')}.class" in ours
    assert ours == theirs, made


@pytest.mark.deep
@pytest.mark.parametrize(
    ("jar", "old", "new", "changed"),
    [
        (CHECKPOINT_FS_JAR, "channel.force(true)", "channel.force(false)", "CheckpointFs$Disk"),
        (COLUMNAR_KAFKA_JAR, "range.failOnDataLoss())", "false)", "ColumnarKafkaReader"),
    ],
    ids=["an fsync that leaves out a file's size", "losses that are passed over in silence"],
)
def test_another_source_would_show(
    tmp_path: Path, jar: Path, old: str, new: str, changed: str
) -> None:
    folder = tmp_path / "sources"
    folder.mkdir()
    of = changed.partition("$")[0]
    for source in sources_of(jar):
        text = source.read_text()
        (folder / source.name).write_text(text.replace(old, new) if source.stem == of else text)
    ours, theirs = kept_and_compiled(jar, sorted(folder.iterdir()), tmp_path)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == [f"exactum/{changed}.class"]


def test_of_two_drivers_one_names_its_file(tmp_path: Path) -> None:
    """Spark counts on it: both have planned the micro-batch of this name. Hadoop's own looks first,
    and then renames, so that the second one replaces the first one's.
    """
    path = [CHECKPOINT_FS_JAR, *pyspark_jars().glob("*.jar")]
    compiled(tmp_path, [TWO_DRIVERS], path)
    names = tmp_path / "names"
    names.mkdir()
    turns = "2000"  # with a look and a rename some 20 of them go wrong
    assert said_by(path, "TwoDrivers", tmp_path, CHECKPOINT_FS, str(names), turns) == "0"


@pytest.mark.deep
def test_headers_are_let_go(tmp_path: Path) -> None:
    """A record's headers lie in the broker's whole answer, which 10,000 records may not keep, with
    a copy of their headers or without.
    """
    path = [COLUMNAR_KAFKA_JAR, *class_path(COLUMNAR_KAFKA_JAR)]
    compiled(tmp_path, [PROBE], path)
    assert said_by(path, "HeldRecords", tmp_path).split() == ["1", "free"] * 2


def said_by(path: Sequence[Path], name: str, folder: Path, *arguments: str) -> str:
    """What a class of ours prints that was compiled to ``folder``."""
    classes = ":".join(map(str, [folder, *path]))
    said = subprocess.run(
        [java_program("java"), "-cp", classes, f"exactum.{name}", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_MAX_S,
    )
    return said.stdout.strip()
