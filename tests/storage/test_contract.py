"""The contract of a storage, kept by folders and by object stores."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import LocalStore, MemoryStore, S3Store

from exactum.errors import HeuristicOutcome, SettingRefused, Unavailable
from exactum.storage import objects
from exactum.storage.at import storage_at
from exactum.storage.folder import Folder
from exactum.storage.objects import ObjectStore
from exactum.storage.storage import UNFINISHED, Storage
from tests.kit.errors import raised
from tests.kit.files.s3_server import s3_server
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = pytest.mark.slow

SPAWN = multiprocessing.get_context("spawn")
KINDS = ("folder", "memory", "disk", "s3")
SHARED = ("folder", "disk", "s3")
"""What several processes see."""


def storage_of(kind: str, folder: Path, settings: dict[str, Any]) -> Storage:
    if kind == "folder":
        return storage_at(folder / "place")
    store: Any = settings
    if kind != "s3":
        store = MemoryStore() if kind == "memory" else LocalStore(folder)
    return storage_at("s3://bucket/place", store)


@pytest.fixture
def settings() -> Iterator[dict[str, Any]]:
    with s3_server("kept") as server:
        yield server.settings


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    settings = request.getfixturevalue("settings") if request.param == "s3" else {}
    storage = storage_of(request.param, tmp_path, settings)
    storage.open("a", "b")
    return storage


def everything(storage: Storage) -> dict[str, int]:
    return {entry.name: entry.size for entry in storage.entries()}


def test_nothing_is_there_before_and_after_it_is_opened(tmp_path: Path, storage: Storage) -> None:
    """Asking makes nothing, opening leaves no file. Whoever opens again removes nothing."""
    for _ in range(2):
        assert everything(storage) == {}
        assert storage.read("a/x") is None
        assert storage.existing(["a/x"]) == set()
        assert storage.names("nowhere") == []
        assert storage.entries("nowhere") == []
        storage.open("a", "b")
    storage.put("a/x", b"1")
    storage.open("a", "b")
    assert everything(storage) == {"a/x": 1}
    asked = Folder(tmp_path / "elsewhere")
    assert (asked.names(), asked.entries(), asked.read("x")) == ([], [], None)
    assert not (tmp_path / "elsewhere").exists()


def test_a_name_is_given_once(storage: Storage) -> None:
    """Whoever comes later learns it; the same content again is no other one."""
    assert storage.create_if_absent("a/x", b"one") is True
    assert storage.create_if_absent("a/x", b"two") is False
    assert storage.create_if_absent("a/x", b"one") is True
    assert storage.read("a/x") == b"one"
    storage.delete(["a/x"])
    assert storage.create_if_absent("a/x", b"two") is True
    assert everything(storage) == {"a/x": 3}


@pytest.mark.parametrize("durable", [True, False])
def test_put_replaces(storage: Storage, durable: bool) -> None:
    """Also what need not be durable."""
    storage.put("b/x", b"before")
    for content in (b"first", b"", b"\x00" * 100_000):
        storage.put("b/x", content, durable=durable)
        assert storage.read("b/x") == content
        assert everything(storage) == {"b/x": len(content)}


CLOCKS_APART_MS = 2_000
"""A file system's clock ticks every some ms, and S3's each second."""


def test_listings(storage: Storage) -> None:
    """Names are of one level, entries of all; what begins alike is not below. Times are by the place's
    clock.
    """
    began_ms = time.time() * 1000 - CLOCKS_APART_MS
    storage.open("a/one", "a/two", "ab")
    storage.put("ab/y", b"")
    for name in ("a/one/1", "a/one/2", "a/two/3", "a/4"):
        storage.put(name, name.encode())
    for names in (storage.names("a"), storage.below("a").names()):
        assert sorted(names) == ["4", "one", "two"]
    assert sorted(storage.below("a").names("one")) == ["1", "2"]
    assert {e.name: e.size for e in storage.entries("a")} == {
        "one/1": 7,
        "one/2": 7,
        "two/3": 7,
        "4": 3,
    }
    modified_ms = [entry.modified_ms for entry in storage.entries("a")]
    assert all(began_ms < at < time.time() * 1000 + CLOCKS_APART_MS for at in modified_ms)
    assert storage.existing(["a/4", "a/5", "c/6"]) == {"a/4"}
    storage.sync("a")
    storage.delete(["a/4", "a/5"])
    storage.delete([])
    assert sorted(storage.names("a")) == ["one", "two"]


def test_a_large_file_appears_whole(storage: Storage) -> None:
    """Nothing has its name before; what was let go of never has it."""
    storage.open("a/mine")
    file, dropped = storage.create("a/mine/0"), storage.create("a/mine/1")
    for one in (file, dropped):
        assert one.write(b"x" * 10) == 10
        one.write(memoryview(b"y" * 1_000_000))
    assert storage.read("a/mine/0") is None
    assert (file.tell(), file.finish()) == (1_000_010, 1_000_010)
    storage.sync("a/mine")
    dropped.discard()
    dropped.discard()
    dropped.write(b"an encoder ends its file")
    with pytest.raises(ValueError, match="discarded"):
        dropped.finish()
    assert storage.read("a/mine/0") == b"x" * 10 + b"y" * 1_000_000
    assert "1" not in storage.names("a/mine")
    empty = storage.create("a/mine/2")
    assert empty.finish() == 0
    assert storage.read("a/mine/2") == b""


def test_pyarrow_writes_and_reads_it(storage: Storage) -> None:
    """From its end, in pieces, and as a text."""
    storage.open("a/mine")
    table = pa.table({"id": range(300_000), "text": [f"row {i}" for i in range(300_000)]})
    file = storage.create("a/mine/0.parquet")
    pq.write_table(table, pa.PythonFile(file, mode="w"))
    size = file.finish()
    with storage.reader("a/mine/0.parquet") as stream:
        assert pq.ParquetFile(stream).read() == table
        assert stream.seek(0, os.SEEK_END) == size
    storage.put("a/lines.gz", gzip.compress(b"1\n2\n3\n" * 10_000))
    with storage.reader("a/lines.gz") as stream, gzip.open(stream) as lines:
        assert sum(map(int, lines)) == 60_000
    with pytest.raises(FileNotFoundError):
        storage.reader("a/nowhere")


def test_a_move_is_done_once(storage: Storage) -> None:
    """By whoever, to a folder that is made; what is in neither place is said so."""
    storage.open("a/mine")
    moves = [(f"a/mine/{n}", f"day={n}/x") for n in range(20)]
    for source, _ in moves:
        storage.put(source, source.encode())
    for _ in range(2):
        assert storage.move_if_absent([*moves, ("a/mine/gone", "gone")]) == [True] * 20 + [False]
        assert [storage.read(t) for _, t in moves] == [s.encode() for s, _ in moves]
        assert storage.entries("a") == []
    storage.put("a/mine/0", b"a/mine/0")  # a backup was put back
    assert storage.move_if_absent(moves[:1]) == [True]
    assert storage.entries("a") == []


def test_a_move_replaces_nothing(storage: Storage) -> None:
    storage.put("a/x", b"mine")
    storage.put("b/x", b"another")
    if isinstance(storage, ObjectStore) and isinstance(storage.store, S3Store):
        return  # it has no conditional copy: names of targets are never another's
    with raised(HeuristicOutcome, "FILE_REPLACED", "b/x"):
        storage.move_if_absent([("a/x", "b/x")])
    assert storage.read("b/x") == b"another"
    assert storage.read("a/x") == b"mine"


def test_many_that_move_the_same_files_agree(storage: Storage) -> None:
    storage.open("a/mine")
    moves = [(f"a/mine/{n}", f"day={n % 3}/{n}") for n in range(50)]
    for source, _ in moves:
        storage.put(source, source.encode())
    with ThreadPoolExecutor(8) as pool:
        assert (
            list(pool.map(lambda _: storage.move_if_absent(moves), range(8))) == [[True] * 50] * 8
        )
    assert everything(storage) == {target: len(source) for source, target in moves}


def test_whoever_writes_what_was_removed_learns_it(storage: Storage) -> None:
    """At its end: a listing shows half a file by the name that it shall have, in an object store not
    at all.
    """
    late = storage.create("a/late")
    late.write(b"2")
    half = storage.names("a")
    if isinstance(storage, ObjectStore):
        assert half == []
        return
    (name,) = half
    assert name.startswith(".late.")
    assert name.endswith(UNFINISHED)
    for _ in range(2):
        storage.delete([f"a/{name}"])
    with pytest.raises(FileNotFoundError):
        late.finish()
    assert storage.names("a") == []


def test_it_pickles_and_shows_no_secret(storage: Storage) -> None:
    keys = {"access_key_id": "a", "secret_access_key": "hidden", "region": "x"}
    azure = ObjectStore.of(
        "abfss://files:hidden@me.dfs.core.windows.net/x", {"account_key": "aGk="}
    )
    assert azure.where == "abfss://files@me.dfs.core.windows.net/x"  # Spark needs it as well
    shown = ObjectStore.of("s3://user:hidden@bucket/x", keys)
    assert "hidden" not in f"{shown} {shown.where} {shown.below('y')}"
    again = pickle.loads(pickle.dumps(shown))
    assert again == shown and again.store.config["secret_access_key"] == "hidden"
    assert shown.where == "s3://bucket/x"
    if isinstance(storage, Folder):
        assert pickle.loads(pickle.dumps(storage)) == storage
    assert storage.may_be_unmounted is isinstance(storage, Folder)
    assert storage.streams_max > 1


# ---- processes -----------------------------------------------------------------------------------


def _race(kind: str, folder: str, settings: dict[str, Any], who: str, ready: Barrier) -> None:
    storage = storage_of(kind, Path(folder), settings)
    ready.wait(WAIT_MAX_S)
    won = [n for n in range(40) if storage.create_if_absent(f"a/{n}", f"{who} {n}".encode())]
    Path(folder, f"{who}.won").write_text(json.dumps(won))


@pytest.mark.parametrize("kind", SHARED)
def test_two_processes_race_and_each_name_has_one_winner(
    kind: str, tmp_path: Path, settings: dict[str, Any]
) -> None:
    storage = storage_of(kind, tmp_path, settings)
    storage.open("a")
    ready = SPAWN.Barrier(2)
    racers = [
        SPAWN.Process(target=_race, args=(kind, str(tmp_path), settings, who, ready))
        for who in ("one", "two")
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(WAIT_MAX_S)
        assert racer.exitcode == 0
    won = {who: json.loads((tmp_path / f"{who}.won").read_text()) for who in ("one", "two")}
    assert sorted(won["one"] + won["two"]) == list(range(40))
    for who, numbers in won.items():
        assert all(storage.read(f"a/{n}") == f"{who} {n}".encode() for n in numbers)


CONTENT = b"0123456789" * 10_000


def _write_for_ever(kind: str, folder: str, settings: dict[str, Any]) -> None:
    storage = storage_of(kind, Path(folder), settings)
    for number in range(1_000_000):
        storage.create_if_absent(f"a/created-{number}", CONTENT)
        storage.put("a/put", CONTENT)
        file = storage.create(f"b/{number}")
        file.write(CONTENT)
        file.finish()
        storage.move_if_absent([(f"b/{number}", f"moved/{number}")])


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_a_killed_writer_leaves_nothing_torn(
    kind: str, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """SIGKILL at any moment: what has a name is whole, and an hour later the rest goes."""
    storage = storage_of(kind, tmp_path, settings)
    storage.open("a", "b")
    for round_ in range(3):
        writer = SPAWN.Process(target=_write_for_ever, args=(kind, str(tmp_path), settings))
        writer.start()
        await_true(lambda: bool(storage.existing(["a/created-0"])), "it writes")
        time.sleep(0.02 * round_)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        sizes = {n: s for n, s in everything(storage).items() if not n.endswith(".tmp")}
        assert "a/created-0" in sizes
        assert set(sizes.values()) == {len(CONTENT)}
        storage.delete(list(sizes))
    for path in tmp_path.rglob("*.tmp"):
        os.utime(path, (time.time() - 7_200,) * 2)
    storage.open("a", "b")
    assert everything(storage) == {}


# ---- what cannot be ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["file", "file/below", "x" * 300, "/dev/null/x"])
def test_a_place_that_can_be_no_folder_is_a_setting(tmp_path: Path, place: str) -> None:
    """From the first call on: no other start mends it."""
    (tmp_path / "file").write_text("")
    storage = Folder(tmp_path / place)
    for call in (storage.names, storage.entries, storage.open):
        with raised(SettingRefused, "FOLDER_ACCESS"):
            call()


def test_what_has_its_name_is_durable_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the file system is asked, in this order: the content is fsynced, then it gets its name,
    then the folder is fsynced. A power cut after that takes neither.
    """
    asked: list[str] = []
    fsync, link = os.fsync, os.link

    def fsyncs(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        asked.append("the folder" if path == str(tmp_path) else "the content")
        fsync(descriptor)

    def links(*given: object, **more: object) -> None:
        asked.append("the name")
        link(*given, **more)  # type: ignore[arg-type]

    storage = Folder(tmp_path)
    storage.open()
    monkeypatch.setattr(os, "fsync", fsyncs)
    monkeypatch.setattr(os, "link", links)
    assert storage.create_if_absent("record", b"decided")
    assert asked == ["the content", "the name", "the folder"]
    asked.clear()
    assert not storage.create_if_absent("record", b"another")
    assert asked[-1] == "the folder"  # who made it may have died before


def test_a_copy_that_is_answered_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Azure's may be (Copy Blob: 202, ``x-ms-copy-status: pending``): an empty object stands there
    until then, and a source that is gone by then fails the copy. The source stays until the target
    has its bytes, whoever asks for the copy.
    """
    takes_s, real = [0.4], obstore.copy

    def copy(store: Any, source: str, target: str, *, overwrite: bool) -> None:
        assert not overwrite
        obstore.put(store, target, b"", mode="create")
        copying = threading.Timer(takes_s[0], real, (store, source, target))
        copying.daemon = True
        copying.start()

    monkeypatch.setattr(obstore, "copy", copy)
    storage = storage_at("memory://files/place", MemoryStore())
    for name in ("a", "b", "c"):
        storage.put(name, name.encode() * 5_000)
    moves = [("a", "to/a"), ("b", "to/b")]
    with ThreadPoolExecutor(2) as drivers:
        asked = [drivers.submit(storage.move_if_absent, moves) for _ in range(2)]
        assert [each.result() for each in asked] == [[True, True]] * 2
    assert everything(storage) == {"c": 5_000, "to/a": 5_000, "to/b": 5_000}
    assert [storage.read(target) for _, target in moves] == [b"a" * 5_000, b"b" * 5_000]
    takes_s[0] = WAIT_MAX_S
    monkeypatch.setattr(objects, "COPY_PAUSES_S", (0.1,))
    with raised(Unavailable, "to/c"):
        storage.move_if_absent([("c", "to/c")])
    assert storage.read("c") == b"c" * 5_000
