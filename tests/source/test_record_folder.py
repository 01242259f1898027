"""Records that cannot be read are not taken for none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from exactum.checkpoint.layout import REPLAYS, RUNS
from exactum.checkpoint.record_folder import FolderFiles
from exactum.checkpoint.run_file import runs
from exactum.errors import CheckpointRefused, ExactumError, Unavailable
from exactum.ops.dead_letters.replay import inherited
from tests.kit.errors import raised


def a_file(place: Path) -> None:
    place.write_text("in the way")


def a_loop(place: Path) -> None:
    """The file system answers with an error, whoever asks."""
    place.symlink_to(place)


@pytest.mark.parametrize(
    ("make", "error", "code"),
    [(a_file, CheckpointRefused, ("CHECKPOINT_ACCESS",)), (a_loop, Unavailable, ())],
    ids=["file", "loop"],
)
def test_a_folder_that_cannot_be_listed(
    tmp_path: Path, make: Callable[[Path], None], error: type[ExactumError], code: tuple[str, ...]
) -> None:
    folder = tmp_path / "stops"
    assert FolderFiles(folder).names() == []
    make(folder)
    with raised(error, *code, folder):
        FolderFiles(folder).names()


def test_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    """One that is damaged is to be restored; where the file system does not answer it is whole."""
    files = FolderFiles(tmp_path)
    a_loop(tmp_path / "1.json")
    (tmp_path / "2.json").write_bytes(b"\xff")
    (tmp_path / "3.json").write_text(json.dumps({"version": 1}))
    assert sorted(files.names()) == ["1.json", "2.json", "3.json"]
    with raised(Unavailable, tmp_path / "1.json"):
        files.read("1.json")
    with raised(CheckpointRefused, "CHECKPOINT_DAMAGED", tmp_path / "2.json"):
        files.read("2.json")
    assert files.read("3.json") == {"version": 1}


@pytest.mark.parametrize("make", [a_file, a_loop], ids=["file", "loop"])
def test_who_runs_and_what_was_sent_is_not_known(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    (tmp_path / RUNS).parent.mkdir(parents=True)
    assert runs(tmp_path) == [] and inherited(tmp_path / REPLAYS) == {}
    make(tmp_path / RUNS)
    make(tmp_path / REPLAYS)
    with raised(CheckpointRefused, "CHECKPOINT_ACCESS", tmp_path / RUNS):
        runs(tmp_path)
    with raised(CheckpointRefused, "CHECKPOINT_ACCESS", tmp_path / REPLAYS):
        inherited(tmp_path / REPLAYS)
