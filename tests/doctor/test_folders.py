"""Folders and object stores of a checkpoint, a decision log, a staging and file sinks: what they can do is
tried, and nothing is left.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from exactum.problem import Problem
from exactum.storage.mount import mount_problems
from tests.kit.doctor.diagnosis import diagnosed, tree
from tests.kit.files.s3_server import S3Server, s3_server
from tests.kit.small_disk import remount, small_disk


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder that must hold the same before and after."""
    found = tmp_path / "place"
    found.mkdir()
    (found / "kept").write_text("kept")
    yield found
    assert tree(found) == {"kept"}


def test_healthy_folders_are_tried_and_left_as_they_were(place: Path, tmp_path: Path) -> None:
    """Where a folder is not there, the one above it is tried."""
    sinks = f"exactum.FileSink({str(place / 'a/b/out')!r})"
    found = diagnosed("--checkpoint", str(place / "a/b/cp"), sinks=sinks, folder=tmp_path)
    assert found.all_is_well(), found.output
    assert found.has("ok", "decision log", "a second one was refused")
    assert found.has("ok", "checkpoint", "replaced, listed and removed")
    assert found.has("ok", "out", "a second one was refused")


def test_a_folder_that_stands_keeps_what_it_has(place: Path, tmp_path: Path) -> None:
    sinks = f"exactum.FileSink({str(place)!r})"
    options = ("--checkpoint", str(place), "--decision-log", f"file://{place}")
    found = diagnosed(*options, sinks=sinks, folder=tmp_path)
    assert found.all_is_well(), found.output
    assert found.has("ok", "checkpoint", "belongs to")


def test_a_staging_that_cannot_be(place: Path, tmp_path: Path) -> None:
    assert diagnosed("--staging", str(place / "kept")).has("error", "staging", "is no folder")
    assert diagnosed("--staging", "ftp://a/b").has(
        "error", "staging: ftp://a/b is neither a folder"
    )
    sinks = "exactum.PostgresSink('postgresql://nobody@127.0.0.1:1/none', table='t')"
    found = diagnosed("--checkpoint", "hdfs://host/cp", sinks=sinks, folder=tmp_path)
    assert found.has("error", "staging: hdfs://host/cp is neither a folder nor in an object store")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "mounted") as place:
        yield place


def test_a_small_file_system_in_memory_is_warned_of(mounted: Path) -> None:
    found = diagnosed("--checkpoint", str(mounted))
    assert found.has("warning", "checkpoint", "is memory")
    assert found.has("warning", "checkpoint", "0.0 GiB")
    assert found.status == 0
    assert tree(mounted) == set()


def test_a_read_only_folder_is_an_error(mounted: Path, tmp_path: Path) -> None:
    """Also for root, whom no mode stops."""
    remount(mounted, "ro")
    sinks = f"exactum.FileSink({str(mounted)!r})"
    found = diagnosed("--checkpoint", str(mounted / "cp"), sinks=sinks, folder=tmp_path)
    assert found.status == 1
    for area in ("checkpoint", "decision log", "files:"):
        assert found.has("error", area, "cannot be written", "Read-only file system")


def refusing(number: int) -> Callable[..., None]:
    def refuse(*of: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize(
    ("call", "does", "said"),
    [
        ("exactum.durable.os.link", refusing(errno.EPERM), "decision log: has no hard links"),
        ("exactum.durable.os.link", os.replace, "decision log: does not keep to create-if-absent"),
        (
            "exactum.storage.folder.sync_folder",
            refusing(errno.EINVAL),
            "checkpoint: fsync folders",
        ),
    ],
)
def test_a_file_system_that_lacks_something(
    place: Path, monkeypatch: pytest.MonkeyPatch, call: str, does: Callable[..., None], said: str
) -> None:
    """Such a one cannot be mounted everywhere; the system's answer is what it would be."""
    monkeypatch.setattr(call, does)
    found = diagnosed("--checkpoint", str(place))
    assert found.has("error", *said.split(": ")), found.output


def test_a_staging_folder_on_another_file_system(mounted: Path, tmp_path: Path) -> None:
    """A rename does not go from one to another."""
    target = tmp_path / "table"
    target.mkdir()
    (target / ".exactum").symlink_to(mounted)
    sinks = f"exactum.FileSink({str(target)!r})"
    found = diagnosed(sinks=sinks, folder=tmp_path)
    assert found.has("error", "files:", "another file system")


def test_a_checkpoint_that_is_no_folder_needs_a_decision_log(tmp_path: Path) -> None:
    found = diagnosed("--checkpoint", "hdfs://node/cp")
    assert found.has("error", "checkpoint", "no decision log is named")
    found = diagnosed("--checkpoint", "hdfs://node/cp", "--decision-log", str(tmp_path))
    assert found.all_is_well(), found.output


def test_a_decision_log_at_an_unknown_place() -> None:
    found = diagnosed("--decision-log", "hdfs://name:secret@node/decisions")
    assert found.has("error", "decision log", "is not supported")
    assert "secret" not in found.output


@pytest.mark.parametrize(
    ("options", "level", "text"),
    [
        ("rw,hard,acregmax=60", "ok", "other machines can see"),
        ("rw,hard,nocto", "error", "nocto"),
    ],
)
def test_what_the_options_of_nfs_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, level: str, text: str
) -> None:
    said = mounted_so(tmp_path, monkeypatch, ("server:/export", tmp_path, "nfs4", options))
    found = {each.level.value: each.what for each in said}
    assert text in found[level]
    assert set(found) == {"ok", level}


@pytest.mark.parametrize(
    ("point", "kind", "text"),
    [("/", "overlay", "container"), ("{}/my data", "fuse.s3fs", "/my data")],
)
def test_what_a_kind_of_file_system_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, kind: str, text: str
) -> None:
    """The deepest of the mounts that a folder lies on counts, and the last one of its point."""
    mounts = [
        ("/dev/sda", "/", "ext4", "rw"),
        (kind, point.format(tmp_path), kind, "rw"),
        ("none", "/elsewhere", "tmpfs", "rw"),
    ]
    (found,) = mounted_so(tmp_path / "my data", monkeypatch, *mounts)
    assert found.level.value == "warning" and text in found.what


def mounted_so(folder: Path, monkeypatch: pytest.MonkeyPatch, *mounts: Any) -> list[Problem]:
    """What is said of a folder where the system shows these mounts."""
    folder.mkdir(exist_ok=True)
    made = [SimpleNamespace(device=d, mountpoint=str(m), fstype=f, opts=o) for d, m, f, o in mounts]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: made)
    return list(mount_problems("x", folder))


@pytest.fixture
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """Settings come from the environment, as they do for a query."""
    with s3_server(request.param) as server:
        for name, value in server.settings.items():
            monkeypatch.setenv(f"AWS_{name.upper()}", str(value).lower())
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "correct-horse")
        yield server


@pytest.mark.parametrize("store", ["kept"], indirect=True)
def test_a_store_that_keeps_to_conditions(store: S3Server, tmp_path: Path) -> None:
    """Nothing is left in it."""
    store.objects["table/part-0.parquet"] = b"kept"
    sink = f"exactum.FileSink('s3://bucket/table', store={store.settings!r})"
    options = ("--decision-log", "s3://bucket/decisions")
    found = diagnosed(*options, sinks=sink, folder=tmp_path)
    assert found.all_is_well(), found.output
    assert found.has("ok", "decision log", "a second one was refused")
    assert found.has("ok", "files:s3://bucket/table", "replaced, listed and removed")
    assert found.has("ok", "files:s3://bucket/table", "clock of the store")
    assert store.objects == {"table/part-0.parquet": b"kept"}
    assert "correct-horse" not in found.output


@pytest.mark.parametrize("store", ["ignored", "raced"], indirect=True)
def test_a_store_that_does_not(store: S3Server) -> None:
    """Two drivers would both believe their decision."""
    found = diagnosed("--decision-log", "s3://bucket/decisions")
    assert found.has("error", "decision log", "does not keep to conditional puts")
    assert found.status == 1
    assert store.objects == {}


@pytest.mark.parametrize("store", ["kept"], indirect=True)
def test_a_prefix_of_delta_lake(store: S3Server, tmp_path: Path) -> None:
    store.objects["table/_delta_log/0.json"] = b"{}"
    sink: Any = f"exactum.FileSink('s3://bucket/table', store={store.settings!r})"
    found = diagnosed(sinks=sink, folder=tmp_path)
    assert found.has("error", "files:", "_delta_log")


@pytest.mark.parametrize("store", ["kept"], indirect=True)
def test_a_staging_in_a_store(store: S3Server) -> None:
    """What waits there is counted, and nothing is left behind."""
    store.objects["rows/whose/a.staged"] = b"12345678"
    found = diagnosed("--staging", "s3://bucket/rows")
    assert found.all_is_well(), found.output
    assert found.has("ok", "staging", "replaced, listed and removed")
    assert found.has("ok", "staging: s3://bucket/rows: 1 files of rows lie there, 0.0 MiB")
    assert store.objects == {"rows/whose/a.staged": b"12345678"}
