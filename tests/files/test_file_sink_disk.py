"""Files as a target: the disk is full, or may not be written."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest

from exactum.errors import (
    EpochAborted,
    SettingRefused,
    Unavailable,
)
from exactum.files.sink import FileSink
from exactum.protocol.model import Decision
from tests.kit.errors import raised
from tests.kit.files.epochs_in_files import (
    duck,
    expected,
    hidden,
    ids_in,
    rows,
)
from tests.kit.opened_sink import OpenedSink
from tests.kit.small_disk import remount, small_disk
from tests.kit.sql.sql_epochs import Query

pytestmark = pytest.mark.slow

NO_SPACE, READ_ONLY = os.strerror(errno.ENOSPC), os.strerror(errno.EROFS)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", "size=4m") as place:
        yield place


def finish(task: Any, batch: pa.RecordBatch) -> None:
    task.write(batch)
    task.prepare()


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def fill_with_files(folder: Path) -> None:
    for number in itertools.count():
        (folder / f"filler{number}").touch()


@pytest.mark.parametrize("format_", ["parquet", "json", "csv"])
def test_a_full_disk_aborts_the_epoch_and_is_cleaned_up(disk: Path, format_: str) -> None:
    """The message names the folder and the room left; earlier rows stand; with room again all
    goes on.
    """
    opened = OpenedSink(FileSink(disk, format=format_, options={"compression": "none"}))
    opened.write(rows(0, 0))
    noise = pa.record_batch(
        {
            "id": pa.array(range(5_000), pa.int64()),
            "text": [os.urandom(1_000).hex() for _ in range(5_000)],
            "day": ["2026-01-01"] * 5_000,
        }
    )
    task = opened.writer(1)
    with raised(EpochAborted, disk, NO_SPACE, " bytes ", " free"):
        finish(task, noise)
    task.abort()
    assert hidden(disk) == []
    assert opened.participant.list_open() == []
    opened.write(rows(1, 0), batch_id=1)
    assert [r[0] for r in duck(disk, "id", format_)] == expected([0, 1])


def test_a_disk_that_becomes_read_only(disk: Path) -> None:
    """No restart mends it: the refusal says so, at a start before an hour of computing; with the
    right to write again all goes on.
    """
    opened = OpenedSink(FileSink(disk))
    opened.write(rows(0, 0))
    remount(disk, "ro")
    try:
        with raised(SettingRefused, "FOLDER_ACCESS", disk / "new", READ_ONLY):
            OpenedSink(FileSink(disk / "new"))
        task = opened.writer(1)
        with raised(SettingRefused, "FOLDER_ACCESS", disk, READ_ONLY):
            finish(task, rows(1, 0))
        task.abort()
    finally:
        remount(disk, "rw")
    opened.write(rows(1, 0), batch_id=1)


def test_a_disk_that_is_full_at_the_start(disk: Path) -> None:
    """Opening says so and leaves nothing; with room again it opens."""
    opened = OpenedSink(FileSink(disk))
    filler = disk / "filler"
    with pytest.raises(OSError, match=NO_SPACE):
        fill(filler)
    with raised(Unavailable, disk, NO_SPACE):
        OpenedSink(FileSink(disk))
    assert list(disk.rglob("*.tmp")) == []
    filler.unlink()
    opened.write(rows(0, 0))
    assert [r[0] for r in duck(disk, "id", "parquet")] == expected([0])


def test_a_disk_that_is_full_at_the_commit_is_no_loss(tmp_path: Path) -> None:
    """A decided epoch that finds no room for its folders waits for it: Unavailable, then carried
    out.
    """
    with small_disk(tmp_path / "small", "size=4m,nr_inodes=64") as disk:
        opened = OpenedSink(FileSink(disk, partition_by="day"))
        prepared = opened.prepare(rows(0, 0))
        permit = opened.permit(prepared)
        with pytest.raises(OSError, match=NO_SPACE):
            fill_with_files(disk)
        with raised(Unavailable, disk, NO_SPACE):
            opened.commit(permit)
        for filler in disk.glob("filler*"):
            filler.unlink()
        assert opened.commit(permit).committed == tuple(prepared)
        assert ids_in(disk) == expected([0])


@contextmanager
def linked_to_another_disk(folder: Path) -> Iterator[str]:
    """Where an archive job has moved it."""
    with small_disk(folder.parent.parent / "archive") as archive:
        folder.symlink_to(archive)
        yield "another file system"
        folder.unlink()


@contextmanager
def a_mount(folder: Path) -> Iterator[str]:
    with small_disk(folder):
        yield "another file system"
    folder.rmdir()


@contextmanager
def a_file(folder: Path) -> Iterator[str]:
    folder.touch()
    yield "Not a directory"
    folder.unlink()


@pytest.mark.parametrize("in_the_way", [linked_to_another_disk, a_mount, a_file])
def test_a_partition_that_takes_no_files(
    table: Path, in_the_way: Callable[[Path], AbstractContextManager[str]]
) -> None:
    """A late row's, say. Nothing is decided, so no other sink has the batch either; once it is out
    of the way the query goes on.
    """

    def decided() -> list[int]:
        each = query.storage.records.values()
        return [r.epoch.batch_id for r in each if r.decision is Decision.COMMIT]

    own = [rows(0, 0).slice(0, 1), rows(1, 0)]
    query = Query(lambda: FileSink(table, partition_by="day"), tasks=lambda batch: [[own[batch]]])
    query.run(0)
    with in_the_way(table / "day=2026-01-02") as why:
        for _ in range(2):
            with raised(SettingRefused, "FOLDER_ACCESS", why, "day=2026-01-02"):
                query.run(1)
    assert decided() == [0]
    query.run(1)
    assert decided() == [0, 1]
    assert ids_in(table) == [*expected([0])[:1], *expected([1])]
