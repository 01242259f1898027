"""Staged files, and who else acts on them: between any two calls of a driver that commits, or of a task
that writes, and afterwards. (What holds for every staged target: tests/contract.)
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

from exactum.custom.write_ahead import WriteAheadSink
from exactum.errors import EpochAborted, SettingRefused
from exactum.files import writer
from exactum.files.sink import FileSink
from exactum.storage.folder import Folder
from tests.kit.errors import raised
from tests.kit.files.epochs_in_files import expected, hidden, ids_in, rows, visible, write_run
from tests.kit.nth_call import after, at_call
from tests.kit.opened_sink import OpenedSink

pytestmark = pytest.mark.slow

CALLS = ("open", "rename", "unlink", "rmdir", "mkdir", "fsync", "stat", "listdir")
REQUESTS = ("put", "get", "list", "delete", "copy", "head", "open_writer")


@pytest.mark.variants(1)
@pytest.mark.parametrize("compacts", [pytest.param(False, marks=pytest.mark.deep), True])
@pytest.mark.parametrize("place", ["folder", "objects"])
def test_a_driver_that_stalls_anywhere_in_its_commit(
    memory: Path, monkeypatch: pytest.MonkeyPatch, place: str, compacts: bool
) -> None:
    """Meanwhile a newer one commits the epoch and the next, and a compaction job may take the
    files: when the old one wakes up it reports success and changes nothing."""
    where, names = (os, CALLS) if place == "folder" else (obstore, REQUESTS)
    for at in range(1, 200):
        table = memory / str(at)
        table.mkdir()
        settings: dict[str, Any] = {} if place == "folder" else {"store": LocalStore(table)}
        path = table if place == "folder" else "memory://x/y"
        old, new = (OpenedSink(FileSink(path, partition_by="day", **settings)) for _ in range(2))
        prepared = old.prepare(rows(0, 0), rows(0, 1))
        permit = old.permit(prepared)

        def overtake(
            new: OpenedSink = new,
            prepared: Any = prepared,
            permit: Any = permit,
            table: Path = table,
        ) -> None:
            assert new.commit(permit).committed == tuple(prepared)
            if compacts:
                for file in visible(table):
                    (table / file).unlink()
            new.write(rows(1, 0), batch_id=1)

        with monkeypatch.context() as patched:
            acted = at_call(patched, where, names, at, after(overtake))
            report = old.commit(permit)
        assert report.committed == tuple(prepared), f"at call {at}"
        if not acted():
            break
        first = [] if compacts else expected([0], 2)
        assert ids_in(table) == first + expected([1]), f"at call {at}"
        assert hidden(table) == [], f"at call {at}"
    print(f"{at} runs")
    assert at > 6


def test_the_marker_is_made_last(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each call of a commit: where the marker is, readers find every file."""
    seen: list[int] = []
    for at in range(1, 200):
        table = memory / str(at)
        opened = OpenedSink(FileSink(table, partition_by="day"))
        prepared = opened.prepare(rows(0, 0), rows(0, 1))
        permit = opened.permit(prepared)

        def check(table: Path = table) -> None:
            if hidden(table, "published-"):
                seen.append(len(visible(table)))

        with monkeypatch.context() as patched:
            acted = at_call(patched, os, CALLS, at, after(check))
            opened.commit(permit)
        if not acted():
            break
    assert at > 6
    assert set(seen) == {4}


@pytest.mark.parametrize("place", ["folder", "objects"])
def test_a_task_whose_staging_is_aborted_at_any_moment(
    memory: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A newer driver aborts what it sees between any two calls of the task: it fails, or what it
    prepared is found missing or is swept by the next listing. Nothing is ever visible."""
    where, names = (os, CALLS) if place == "folder" else (obstore, REQUESTS)
    for at in range(1, 200):
        table = memory / str(at)
        store: Any = MemoryStore()
        settings: dict[str, Any] = {} if place == "folder" else {"store": store}
        path = table if place == "folder" else "memory://x/y"
        sink = FileSink(path, bytes_per_file_max=1, **settings)
        old, new = OpenedSink(sink), OpenedSink(sink)
        task = old.writer()

        def sweep(new: OpenedSink = new) -> None:
            new.participant.abort(new.participant.list_open())

        prepared: list[Any] = []
        with monkeypatch.context() as patched:
            patched.setattr(writer, "RUN_ROWS_MAX", 1)
            acted = at_call(patched, where, names, at, after(sweep))
            try:
                task.write(rows(0, 0))
                task.write(rows(1, 0))
                prepared = [task.prepare()]
            except (EpochAborted, SettingRefused):
                task.abort()
        if not acted():
            assert len(prepared) == 1
            break
        if prepared and new.participant.list_open() == []:
            with pytest.raises(EpochAborted):
                old.participant.verify(prepared)
        sweep()
        assert new.participant.list_open() == []
        if place == "folder":
            assert visible(table) == []
            assert hidden(table) == []
        else:
            left = [m["path"] for chunk in obstore.list(store) for m in chunk]
            assert [n for n in left if "staged" in n or not n.startswith(".exactum")] == []
    print(f"{at} runs")
    assert at > 2


def test_the_whole_place_is_removed_under_a_running_query(memory: Path) -> None:
    """Or an executor does not see it: a task makes no folder of its own of the same name, and says so.
    A restart makes it anew.
    """
    opened = OpenedSink(FileSink(memory / "table"))
    opened.write(rows(0, 0))
    shutil.rmtree(memory / "table")
    with raised(SettingRefused, "STAGING_NOT_SHARED", memory / "table"):
        opened.prepare(rows(1, 0), batch_id=1)
    assert not (memory / "table").exists()
    OpenedSink(FileSink(memory / "table")).write(rows(1, 0), batch_id=1)
    assert ids_in(memory / "table") == expected([1])


def test_a_marker_never_keeps_a_staged_file_from_readers(table: Path) -> None:
    """What is decided and staged is published, whatever has been marked; what is not decided is
    refused before that.
    """
    opened = OpenedSink(FileSink(table))
    opened.write(rows(9, 0), batch_id=9)
    decided = opened.prepare(rows(3, 0), batch_id=3)
    assert opened.commit(opened.permit(decided, 3)).committed == tuple(decided)
    assert ids_in(table) == expected([3, 9])


def test_what_dead_tasks_have_half_written_goes(table: Path) -> None:
    """Of this run or of a run that was killed; what names no transaction an hour later."""
    opened = OpenedSink(FileSink(table))
    for dead in (opened, OpenedSink(FileSink(table))):
        task = dead.writer()
        task.write(rows(0, 0))
        write_run(task)
        assert [Path(f).suffix for f in hidden(table)] == [".tmp"]
        opened.participant.abort(opened.participant.list_open())
        assert hidden(table) == []
        task.abort()
    (scope,) = (table / ".exactum").iterdir()
    left = [scope / ".1.tmp", scope / ".2.tmp"]
    for file in left:
        file.touch()
    os.utime(left[0], (time.time() - 7_200,) * 2)
    OpenedSink(FileSink(table)).write(rows(0, 0))
    assert [file.name for file in scope.glob("*.tmp")] == [left[1].name]


def test_a_sink_of_another_kind_sweeps_what_a_former_one_left(tmp_path: Path) -> None:
    """Wherever its own rows wait."""
    former = OpenedSink(FileSink(tmp_path / "out"))
    former.prepare(rows(0, 0))
    own = Folder(tmp_path / "staging")
    present = OpenedSink(WriteAheadSink(lambda batch, key: None), staging=own)
    left = present.opened.reach(former.participant.name, former.opened.trace)
    assert left is not None
    left.abort(left.list_open())
    assert hidden(tmp_path / "out") == []
