"""The jar that reads Kafka in columns is what its sources compile to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from exactum.java.program import java_program
from exactum.spark.runtime.spark_jars import FORMAT, columnar_kafka_jar
from tests.kit.spark.columnar_jar import SOURCES, class_path
from tests.kit.spark.java_classes import classes, compiled, kept
from tests.kit.waiting import WAIT_MAX_S

PROBE = Path(__file__).parents[1] / "kit" / "spark" / "HeldRecords.java"


def test_it_is_made_of_its_sources(tmp_path: Path) -> None:
    """Run ``make columnar-jar`` where this fails."""
    ours = kept(columnar_kafka_jar(), tmp_path / "kept")
    made = compiled(tmp_path / "made", SOURCES, class_path())
    assert f"{FORMAT.replace('.', '/')}.class" in ours
    assert ours == classes(tmp_path / "made", made), "make columnar-jar"


@pytest.mark.deep
def test_another_source_would_show(tmp_path: Path) -> None:
    """Losses that are passed over in silence, and nothing else."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for source in SOURCES:
        text = source.read_text()
        if source.name == "ColumnarKafkaReader.java":
            text = text.replace("range.failOnDataLoss())", "false)")
        (folder / source.name).write_text(text)
    made = compiled(tmp_path / "other", sorted(folder.iterdir()), class_path())
    theirs = classes(tmp_path / "other", made)
    ours = kept(columnar_kafka_jar(), tmp_path / "kept")
    assert [name for name in ours if ours[name] != theirs[name]] == [
        "exactum/ColumnarKafkaReader.class"
    ]


@pytest.mark.deep
def test_headers_are_let_go(tmp_path: Path) -> None:
    """A record's headers lie in the broker's whole answer, which 10,000 records may not keep, with
    a copy of their headers or without.
    """
    path = [columnar_kafka_jar(), *class_path()]
    compiled(tmp_path, [PROBE], path)
    said = subprocess.run(
        [java_program("java"), "-cp", ":".join(map(str, [tmp_path, *path])), "exactum.HeldRecords"],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_MAX_S,
    )
    assert said.stdout.split() == ["1", "free"] * 2
