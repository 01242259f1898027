"""The jar that the wheel carries is what its source compiles to: who reads the source has read the
jar.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from exactum.spark.runtime import spark_jars
from tests.kit.spark import checkpoint_jar
from tests.kit.spark.java_classes import classes, compiled, kept


def test_it_is_made_of_the_source(tmp_path: Path) -> None:
    """Run ``make checkpoint-jar`` where this fails."""
    ours = kept(spark_jars.checkpoint_jar(), tmp_path / "kept")
    made = compiled(tmp_path / "made", [checkpoint_jar.SOURCE], checkpoint_jar.class_path())
    assert f"{spark_jars.CHECKPOINT_FS.replace('.', '/')}.class" in ours
    assert ours == classes(tmp_path / "made", made), "make checkpoint-jar"


@pytest.mark.deep
def test_another_source_would_show(tmp_path: Path) -> None:
    """An fsync that leaves out what the file's system knows of it, and nothing else."""
    text = checkpoint_jar.SOURCE.read_text()
    assert text.count("channel.force(true)") == 1
    other = tmp_path / checkpoint_jar.SOURCE.name
    other.write_text(text.replace("channel.force(true)", "channel.force(false)"))
    made = compiled(tmp_path / "other", [other], checkpoint_jar.class_path())
    theirs = classes(tmp_path / "other", made)
    ours = kept(spark_jars.checkpoint_jar(), tmp_path / "kept")
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == [
        "exactum/CheckpointFs$Disk.class"
    ]
