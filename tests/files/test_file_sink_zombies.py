"""Somebody else acts between any two calls of a driver that commits, or of a task that writes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

from exactum.errors import EpochAborted, SettingRefused
from exactum.files import writer
from exactum.files.sink import FileSink
from tests.kit.files.epochs_in_files import OpenedSink, expected, hidden, ids_in, rows, visible

pytestmark = pytest.mark.slow

CALLS = ("open", "rename", "unlink", "rmdir", "mkdir", "fsync", "stat", "listdir")
REQUESTS = ("put", "get", "list", "delete", "copy", "head", "open_writer")


@pytest.fixture
def memory() -> Iterator[Path]:
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as name:
        yield Path(name)


def interrupted(
    patched: pytest.MonkeyPatch,
    where: Any,
    names: tuple[str, ...],
    at: int,
    act: Callable[[], None],
) -> Any:
    """Let ``act`` happen before the ``at``-th of these calls from now on. Returns whether it has
    happened.
    """
    calls, acted, real = 0, False, {name: getattr(where, name) for name in names}

    def counting(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls, acted
            calls += 1
            if calls == at:
                acted = True
                act()
            return real[name](*args, **kwargs)

        return call

    for name in names:
        patched.setattr(where, name, counting(name))
    return lambda: acted


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
            assert new.participant.commit(permit, prepared).committed == tuple(prepared)
            if compacts:
                for file in visible(table):
                    (table / file).unlink()
            new.commit(rows(1, 0), batch_id=1)

        with monkeypatch.context() as patched:
            acted = interrupted(patched, where, names, at, overtake)
            report = old.participant.commit(permit, prepared)
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
            acted = interrupted(patched, os, CALLS, at, check)
            opened.participant.commit(permit, prepared)
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
        sink = FileSink(path, rows_per_file_max=2, **settings)
        old, new = OpenedSink(sink), OpenedSink(sink)
        task = old.writer()

        def sweep(new: OpenedSink = new) -> None:
            new.participant.abort(new.participant.list_open())

        prepared: list[Any] = []
        with monkeypatch.context() as patched:
            patched.setattr(writer, "RUN_ROWS_MAX", 1)
            acted = interrupted(patched, where, names, at, sweep)
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
    """The user deletes the table's folder: the running attempt is aborted or told, and a restart
    makes it anew.
    """
    opened = OpenedSink(FileSink(memory / "table"))
    opened.commit(rows(0, 0))
    shutil.rmtree(memory / "table")
    with pytest.raises(SettingRefused, match="does not see the staging"):
        opened.prepare(rows(1, 0), batch_id=1)
    OpenedSink(FileSink(memory / "table")).commit(rows(1, 0), batch_id=1)
    assert ids_in(memory / "table") == expected([1])
