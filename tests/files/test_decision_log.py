"""The decision log on a file system: the contract, real races, SIGKILL, and every file system
failure.
"""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from exactum.errors import (
    CheckpointRefused,
    Fenced,
    InvariantBroken,
    OutcomeUnknown,
    SettingRefused,
    Unavailable,
)
from exactum.files import decision_log
from exactum.files.decision_log import FileDecisionLog
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import Decision
from exactum.testing import LogContract
from exactum.testing.log_contract import QUERY_ID, record
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.slow

SPAWN = multiprocessing.get_context("spawn")


class TestFileDecisionLog(LogContract):
    @pytest.fixture(autouse=True)
    def _place(self, folder: Path) -> None:
        self.folder = folder / "not" / "yet" / "there"

    def open_log(self, query_id: str) -> DecisionLog:
        return FileDecisionLog(self.folder, query_id, prune_every=1)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: for tests in which no disk fails."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture
def log(tmp_path: Path) -> FileDecisionLog:
    return FileDecisionLog(tmp_path, QUERY_ID, prune_every=1)


def _race(folder: str, who: str, slots: int, ready: Barrier) -> None:
    log = FileDecisionLog(Path(folder), QUERY_ID)
    ready.wait(WAIT_MAX_S)
    won = [b for b in range(slots) if log.decide(record(b, 0, who)).incarnation == who]
    Path(folder, f"{who}.won").write_text(json.dumps(won))


def test_two_processes_race_and_each_slot_has_one_winner(folder: Path) -> None:
    """Over 200 slots, what one process won and what the other won are exactly all slots, once
    each.
    """
    ready = SPAWN.Barrier(2)
    racers = [
        SPAWN.Process(target=_race, args=(str(folder), w, 200, ready)) for w in ("one", "two")
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(WAIT_MAX_S)
        assert racer.exitcode == 0
    won = {w: json.loads((folder / f"{w}.won").read_text()) for w in ("one", "two")}
    assert sorted(won["one"] + won["two"]) == list(range(200))
    log = FileDecisionLog(folder, QUERY_ID)
    for who, batches in won.items():
        assert all(log.read(b)[0] == record(b, 0, who) for b in batches)
    print(f"winners: {len(won['one'])} to {len(won['two'])}")


def _decide_for_ever(folder: str, first: int) -> None:
    log = FileDecisionLog(Path(folder), QUERY_ID)
    for batch_id in range(first, first + 1_000_000):
        log.decide(record(batch_id))


@pytest.mark.deep
def test_a_killed_writer_leaves_no_torn_record(folder: Path) -> None:
    """SIGKILL at any moment: every record that can be read is whole, and none is missing in
    between.
    """
    first = 0
    for round_ in range(8):
        writer = SPAWN.Process(target=_decide_for_ever, args=(str(folder), first))
        writer.start()
        deadline = time.monotonic() + 30
        while not (folder / f"{first:020d}-0.json").exists():
            assert writer.is_alive() and time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(0.017 * round_)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        log = FileDecisionLog(folder, QUERY_ID)
        while records := log.read(first):
            assert records == (record(first),)
            first += 1
    assert first >= 8
    names = [n for n in os.listdir(folder) if not n.startswith(".")]
    assert len(names) == first
    print(f"{first} records by 8 killed writers")


def test_a_record_is_readable_by_a_person(log: FileDecisionLog, tmp_path: Path) -> None:
    """The file is named by batch and attempt and holds indented JSON."""
    log.decide(record(42))
    text = (tmp_path / "00000000000000000042-0.json").read_text()
    assert json.loads(text)["decision"] == "commit"
    assert text.startswith('{\n  "version"')
    assert os.listdir(tmp_path) == ["00000000000000000042-0.json"]


@pytest.mark.parametrize("place", ["file", "file/below", "x" * 300, "/dev/null/x"])
def test_a_place_that_can_be_no_folder_is_a_setting(tmp_path: Path, place: str) -> None:
    """From the first look on: no other start mends it."""
    (tmp_path / "file").write_text("")
    log = FileDecisionLog(tmp_path / place, QUERY_ID)
    with pytest.raises(SettingRefused, match="Choose a folder"):
        log.read(0)


def test_a_record_of_another_query_is_refused(log: FileDecisionLog, tmp_path: Path) -> None:
    """Two queries on one log is found at the first read, and at a lost race."""
    FileDecisionLog(tmp_path, "other").decide(record(1, query_id="other"))
    with pytest.raises(CheckpointRefused, match="belongs to query other"):
        log.read(1)
    with pytest.raises(CheckpointRefused, match="belongs to query other"):
        log.decide(record(1))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 1}', "\xff"])
def test_a_damaged_record_stops_the_query(
    log: FileDecisionLog, tmp_path: Path, content: str
) -> None:
    """A record that cannot be read is never taken for an absent one."""
    (tmp_path / "00000000000000000001-0.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(InvariantBroken, match="damaged"):
        log.read(1)
    with pytest.raises(InvariantBroken, match="damaged"):
        log.decide(record(1))


def test_a_record_of_a_newer_version_is_refused(log: FileDecisionLog, tmp_path: Path) -> None:
    """A newer format is not guessed at."""
    log.decide(record(1))
    path = tmp_path / "00000000000000000001-0.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(CheckpointRefused, match="newer exactum"):
        log.read(1)


def test_a_copied_record_is_refused(log: FileDecisionLog, tmp_path: Path) -> None:
    """A record under another slot's name is damage, not a decision."""
    log.decide(record(1))
    (tmp_path / "00000000000000000002-0.json").write_bytes(
        (tmp_path / "00000000000000000001-0.json").read_bytes()
    )
    with pytest.raises(InvariantBroken, match="it holds attempt 0 of epoch 1"):
        log.read(2)


def test_a_missing_record_stops_a_start(log: FileDecisionLog, tmp_path: Path) -> None:
    """A gap between attempts, and a lost batch before a later one, are found by the first read."""
    for batch_id in (1, 2):
        log.decide(record(batch_id, 0, decision=Decision.ABORT))
        log.decide(record(batch_id, 1))
    (tmp_path / "00000000000000000002-0.json").unlink()
    with pytest.raises(InvariantBroken, match="missing"):
        FileDecisionLog(tmp_path, QUERY_ID).read(2)
    for attempt in (0, 1):
        (tmp_path / f"00000000000000000001-{attempt}.json").unlink()
    with pytest.raises(InvariantBroken, match="missing"):
        FileDecisionLog(tmp_path, QUERY_ID).read(1)


def test_no_hard_links_is_refused(
    log: FileDecisionLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that cannot create-if-absent is refused before anything is written."""

    def link(a: Path, b: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(decision_log.os, "link", link)
    with pytest.raises(SettingRefused, match="no hard links"):
        log.decide(record(1))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("code", [errno.EEXIST, errno.EIO])
def test_a_lost_reply_of_link_is_settled(
    log: FileDecisionLog, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A link that took effect and reported failure (NFS) is found to stand."""
    real = os.link

    def link(a: Path, b: Path) -> None:
        real(a, b)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(decision_log.os, "link", link)
    assert log.decide(record(1)) == record(1)
    assert log.decide(record(1, 0, "late")) == record(1)


def test_an_unclear_link_is_unknown(log: FileDecisionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that failed in an unknown way, and is not seen, is neither success nor failure."""

    def link(a: Path, b: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(decision_log.os, "link", link)
    with pytest.raises(OutcomeUnknown):
        log.decide(record(1))


def test_a_full_disk_changes_nothing(
    log: FileDecisionLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error before the link is Unavailable: no record was made."""

    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    log.decide(record(0))
    monkeypatch.setattr(decision_log.os, "fsync", fsync)
    with pytest.raises(Unavailable):
        log.decide(record(1))
    assert sorted(os.listdir(tmp_path)) == ["00000000000000000000-0.json"]


def test_pruning_removes_what_crashed_writers_left(folder: Path) -> None:
    """Old temporary files and lower floor markers go; young ones stay; the folder does not grow."""
    log = FileDecisionLog(folder, QUERY_ID, prune_every=1)
    old, young = folder / ".x.json.1.tmp", folder / ".x.json.2.tmp"
    old.touch()
    young.touch()
    os.utime(old, (time.time() - 7_200,) * 2)
    for batch_id in range(60):
        log.decide(record(batch_id))
        log.prune(batch_id)
    assert sorted(os.listdir(folder)) == [young.name, f"{59:020d}-0.json", f"floor-{59:020d}"]


def test_pruning_works_only_now_and_then(folder: Path) -> None:
    """Called after every batch it does real work once in twenty."""
    log = FileDecisionLog(folder, QUERY_ID)
    removed = []
    for batch_id in range(100):
        log.decide(record(batch_id))
        removed.append(log.prune(batch_id))
    assert [r for r in removed if r] == [20, 20, 20, 20]


def _zombie(
    folder: Path, attempt: int, at: int, patched: pytest.MonkeyPatch
) -> tuple[object, bool]:
    """What a zombie's decide for batch 5 gets if two pruning rounds come before its ``at``-th
    call.
    """
    newer = FileDecisionLog(folder, QUERY_ID, prune_every=1)
    for batch_id in range(12):
        newer.decide(record(batch_id))
    newer.prune(3)
    calls = 0

    def interrupted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == at:
                newer.prune(8)
                newer.prune(10)
            return real(*args, **kwargs)

        return call

    zombie = FileDecisionLog(folder, QUERY_ID)
    for name in ("open", "link", "listdir", "fsync", "stat"):
        patched.setattr(decision_log.os, name, interrupted(getattr(os, name)))
    try:
        return zombie.decide(record(5, attempt, "zombie")), calls >= at
    except Fenced:
        return "fenced", calls >= at


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_zombie_is_fenced_whenever_the_pruner_comes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, attempt: int
) -> None:
    """Two pruning rounds may come between any two file system calls of a zombie's decide.

    It is told what stood before the pruner came, or is fenced; a slot emptied by the pruner is
    never its.
    """
    observed: list[object] = []
    for at in range(1, 40):
        place = folder / str(at)
        with monkeypatch.context() as patched:
            stands, pruned = _zombie(place, attempt, at, patched)
        observed.append("fenced" if stands == "fenced" else "stands")
        expected = record(5) if attempt == 0 else record(5, 1, "zombie")
        assert stands in ("fenced", expected), f"at call {at}: {stands}"
        assert not (pruned and list(place.glob(f"{5:020d}-*"))), f"at call {at}: left behind"
        if not pruned:
            break
    assert observed[0] == "fenced"
    assert observed[-1] == "stands"
    print(f"{len(observed)} runs: {observed.count('fenced')} fenced")


def test_a_listing_that_misses_the_floor_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pruning round in the middle of a listing can hide both markers: the record is then
    looked for.
    """
    newer = FileDecisionLog(tmp_path, QUERY_ID, prune_every=1)
    for batch_id in range(12):
        newer.decide(record(batch_id))
    newer.prune(8)
    real = os.listdir
    missed = []

    def listdir(folder: Path) -> list[str]:
        if missed:
            return real(folder)
        missed.append(True)
        newer.prune(10)  # makes floor-10, removes our void record, removes floor-8
        return [n for n in real(folder) if not n.startswith("floor-")]

    monkeypatch.setattr(decision_log.os, "listdir", listdir)
    with pytest.raises(Fenced):
        FileDecisionLog(tmp_path, QUERY_ID).decide(record(5, 0, "zombie"))
    assert missed


def test_a_void_commit_is_not_redelivered(folder: Path) -> None:
    """A zombie starter that already began does not take over the void COMMIT of another zombie."""
    newer = FileDecisionLog(folder, QUERY_ID, prune_every=1)
    starter = FileDecisionLog(folder, QUERY_ID)
    assert starter.read(4) == ()
    for batch_id in range(4, 12):
        newer.decide(record(batch_id))
    newer.prune(10)
    (folder / "void").write_text(json.dumps(record(5, 0, "zombie").to_json()))
    os.rename(folder / "void", folder / f"{5:020d}-0.json")
    with pytest.raises(CheckpointRefused):
        starter.read(5)
