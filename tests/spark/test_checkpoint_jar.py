"""The jar that the wheel carries is what its source compiles to: who reads the source has read the
jar.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from exactum.spark.runtime.checkpoint_fs import CLASS, SOURCE, checkpoint_jar
from tests.kit.spark.checkpoint_jar import compiled, disassembled


def classes(folder: Path, files: list[Path]) -> dict[str, list[str]]:
    return {path.relative_to(folder).as_posix(): disassembled(path) for path in files}


def kept(folder: Path) -> dict[str, list[str]]:
    with zipfile.ZipFile(checkpoint_jar()) as jar:
        jar.extractall(folder)
    return classes(folder, [path for path in folder.rglob("*") if path.is_file()])


def test_it_is_made_of_the_source(tmp_path: Path) -> None:
    """Run ``make checkpoint-jar`` where this fails."""
    ours = kept(tmp_path / "kept")
    assert f"{CLASS.replace('.', '/')}.class" in ours
    assert ours == classes(tmp_path / "made", compiled(tmp_path / "made")), "make checkpoint-jar"


def test_another_source_would_show(tmp_path: Path) -> None:
    """An fsync that leaves out what the file's system knows of it, and nothing else."""
    text = SOURCE.read_text()
    assert text.count("channel.force(true)") == 1
    other = tmp_path / SOURCE.name
    other.write_text(text.replace("channel.force(true)", "channel.force(false)"))
    theirs = classes(tmp_path / "other", compiled(tmp_path / "other", other))
    ours = kept(tmp_path / "kept")
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == [
        "exactum/CheckpointFs$Disk.class"
    ]
