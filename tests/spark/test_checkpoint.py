"""The reader of Spark's offset log: pure, on texts as Spark writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from exactum.checkpoint import offset_log
from exactum.errors import CheckpointRefused
from exactum.protocol.model import SourceOffsets
from exactum.storage.folder import Folder
from tests.kit.errors import raised

TWO = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"t":{"1":5,"0":7}}\n-'
ONE = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"t":{"0":3,"1":4}}\n-\n'


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        ("/data/x", "/data/x"),
        ("file:/data/x", "/data/x"),
        ("file:///data/x y", "/data/x y"),
        ("file:/data/50%25?#", "/data/50%25?#"),
        ("relative/x", "relative/x"),
        ("s3a://bucket/x", None),
        ("hdfs://node:8020/x", None),
        ("file://server/share", None),
    ],
)
def test_local_folder(uri: str, folder: str | None) -> None:
    """Only local and shared file systems have a folder, and Hadoop's paths are taken as they are
    printed.
    """
    assert offset_log.local_folder(uri) == (Path(folder) if folder else None)


def test_offsets_are_canonical() -> None:
    """The same offsets are the same text whatever order Spark wrote their keys in; ``-`` is no
    offset.
    """
    assert offset_log.parse(TWO, "here") == ('{"t":{"0":7,"1":5}}', None)


def test_offsets_that_are_not_json() -> None:
    """A source may write anything on its line; it is compared as it is."""
    assert offset_log.parse("v1\n{}\nrow 17", "here") == ("row 17",)


def test_start_is_the_end_of_the_batch_before(tmp_path: Path) -> None:
    """From batch 0 and from a batch whose predecessor is purged, the start is unknown."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text(ONE)
    (tmp_path / "offsets" / "4").write_text(TWO)
    read = offset_log.reader(Folder(tmp_path).read, "here")
    assert offset_log.source_offsets(read, 4, "here") == SourceOffsets(
        start=('{"t":{"0":3,"1":4}}', None), end=('{"t":{"0":7,"1":5}}', None)
    )
    assert offset_log.source_offsets(read, 3, "here").start == ()


def test_a_missing_batch_is_refused(tmp_path: Path) -> None:
    """Spark runs a batch that is not in its own log: somebody replaced the folder."""
    with raised(CheckpointRefused, "CHECKPOINT_DAMAGED", "here", "offsets/7"):
        offset_log.source_offsets(offset_log.reader(Folder(tmp_path).read, "here"), 7, "here")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """Whoever reads a file of Spark's as text, a start or a command, is told which one it is."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_bytes(b"\x00\xff" * 40)
    with raised(CheckpointRefused, "CHECKPOINT_DAMAGED", "here/offsets/3", "no text"):
        offset_log.reader(Folder(tmp_path).read, "here")("offsets/3")


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}", "v9\n{}\n{}", "{}\n{}\n{}"])
def test_an_unknown_or_damaged_log_is_refused(text: str) -> None:
    """Never guessed at."""
    with raised(CheckpointRefused, "CHECKPOINT_DAMAGED", "here"):
        offset_log.parse(text, "here")
