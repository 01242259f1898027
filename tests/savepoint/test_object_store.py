"""Checkpoints in an object store: who runs there, who is to stop, and what becomes of savepoints,
killed at each request. Without Spark; `make objects` has queries on a real server.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from exactum.checkpoint import request_file, run_file
from exactum.checkpoint.query_place import place_of
from exactum.checkpoint.request_file import Answer, stop
from exactum.checkpoint.retirement import refuse_retired
from exactum.checkpoint.run_file import RunFile, living, runs
from exactum.checkpoint.savepoint import restore as restore_module
from exactum.checkpoint.savepoint.create import create, delete
from exactum.checkpoint.savepoint.manifest import verify
from exactum.checkpoint.savepoint.restore import Identity, restore
from exactum.errors import CheckpointRefused, ExactumError, Fenced, Unavailable
from exactum.files.slot_log import SlotLog
from exactum.monitor import history
from exactum.monitor.fact import Fact
from exactum.monitor.history import HistoryWriter
from exactum.monitor.job import read_job
from exactum.monitor.job_history import HistoryReader, JobHistory
from exactum.ops import cli
from exactum.protocol.model import Decision, DecisionRecord, Epoch, Incarnation
from exactum.storage.storage import Storage
from tests.kit.errors import raised
from tests.kit.every_call import every_call
from tests.kit.files.s3_server import S3Server, s3_server
from tests.kit.savepoint.stateless import QUERY, make_checkpoint
from tests.kit.waiting import WAIT_MAX_S, await_true

ROOT = "s3a://bucket"
CHECKPOINT, SAVEPOINT, MOVED = f"{ROOT}/checkpoint", f"{ROOT}/savepoint", f"{ROOT}/moved"
CALLS_MAX = 200


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server("kept") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def checkpoint(server: S3Server, tmp_path: Path) -> Storage:
    """Of a query without state that has completed epochs 0 and 1."""
    return uploaded(make_checkpoint(tmp_path / "checkpoint"), server)


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore_module, "ENDING_S", 0.1)
    monkeypatch.setattr(run_file, "POLL_STORE_S", 0.05)


def uploaded(folder: Path, server: S3Server) -> Storage:
    """With the empty objects by which Hadoop marks folders, full ones and an empty one."""
    files = place_of(CHECKPOINT)
    marked = ("", "commits/", "offsets/", "sources/0/", "state/0/1/")
    server.objects.update({f"checkpoint/{folder}": b"" for folder in marked})
    for path in (path for path in folder.rglob("*") if path.is_file()):
        files.put(path.relative_to(folder).as_posix(), path.read_bytes())
    return files


def is_usable(place: str) -> bool:
    """Whether a query starts from it, and is not fenced there."""
    files = place_of(place)
    if files.read("metadata") is None:
        return False
    try:
        refuse_retired(files)
    except CheckpointRefused:
        return False
    log_of(files).read(2)
    return True


def log_of(files: Storage) -> SlotLog:
    return SlotLog(files.below("exactum/decisions"), QUERY)


def decision(batch_id: int) -> DecisionRecord:
    return DecisionRecord(Epoch(QUERY, batch_id), 0, Decision.COMMIT, Incarnation("b" * 16))


# ---- who runs --------------------------------------------------------------------------------


def test_a_run_is_seen_while_it_beats(
    checkpoint: Storage, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the store's clock, however wrong this machine's is; silent for three beats it is dead; one
    that has ended is over at once. A later run clears away what it left.
    """
    first, second = (RunFile(checkpoint, number * 16, "0", "4.2.0") for number in "12")
    first.hold()
    first.hold()
    assert [run.incarnation for run in living(checkpoint)] == ["1" * 16]
    with monkeypatch.context() as patch:
        now_s = time.time()
        patch.setattr(run_file.time, "time", lambda: now_s + 1_200)
        assert living(checkpoint), "a clock that is 20 minutes off"
    with monkeypatch.context() as patch:
        patch.setattr(run_file, "SILENT_MAX_MS", -1)
        assert not living(checkpoint) and len(runs(checkpoint)) == 1
    first.release()
    assert not living(checkpoint) and len(runs(checkpoint)) == 1
    second.hold()
    assert [run.incarnation for run, _ in runs(checkpoint)] == ["2" * 16]
    second.release()


def test_a_beat_that_fails_is_made_up_for(
    checkpoint: Storage, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_file, "BEAT_S", 0.05)
    run = RunFile(checkpoint, "1" * 16, "0", "4.2.0")
    run.hold()
    (name,) = (key for key in server.objects if key.endswith(f"{'1' * 16}.json"))
    server.refusal = (403, "AccessDenied")
    time.sleep(0.2)
    server.refusal = None
    del server.objects[name]
    await_true(lambda: name in server.objects, "it beats again")
    run.release()
    time.sleep(0.2)
    assert json.loads(server.objects[name])["over"], "no beat comes behind the end"


def test_a_query_is_stopped_by_a_request(checkpoint: Storage) -> None:
    """What a driver does, by hand: it sees the request, answers, and lets go."""
    with raised(CheckpointRefused, "QUERY_STOPPED", CHECKPOINT):
        stop(checkpoint, 1.0)
    run = RunFile(checkpoint, "1" * 16, "0", "4.2.0")
    run.hold()

    def drive() -> None:
        await_true(lambda: request_file.find(checkpoint, "1" * 16) is not None, "it is asked")
        request = request_file.find(checkpoint, "1" * 16)
        assert request is not None and request.stands(checkpoint)
        request.answer(checkpoint, Answer(stopped=True, batch_id=1))
        run.release()

    driver = threading.Thread(target=drive)
    driver.start()
    assert stop(checkpoint, WAIT_MAX_S).batch_id == 1
    driver.join()
    assert checkpoint.names("exactum/requests") == []


def test_the_history_is_followed(
    checkpoint: Storage, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object is put anew every few seconds, and at once where it may be the last word."""
    monkeypatch.setattr(history, "OBJECT_BYTES_MAX", 500)
    writer, reader = HistoryWriter(checkpoint), HistoryReader(checkpoint)
    writer.write([])
    assert not JobHistory(checkpoint).is_there
    for number in range(20):
        writer.write([Fact(number, "EpochAbandoned", {"query_id": QUERY, "batch_id": number})])
    writer.write([Fact(20, "InputLag", {"query_id": QUERY})])
    names = [key for key in server.objects if "/history/" in key]
    assert len(names) > 1
    text = b"".join(server.objects[name] for name in sorted(names)).decode()
    assert text.count("EpochAbandoned") == 20 and "InputLag" not in text
    monkeypatch.setattr(history, "PUT_EVERY_S", 0.0)
    writer.write([])
    assert "InputLag" in "".join(server.objects[name].decode() for name in names)
    found: list[Fact] = []
    for _ in range(2):
        reader.read(found.append, 10**13)
    assert [fact.at_ms for fact in found] == [*range(21)] and reader.unreadable == 0


def test_commands_read_it(checkpoint: Storage) -> None:
    """As a folder's; what they need to reach the store is in the environment."""
    run = RunFile(checkpoint, "1" * 16, "0", "4.2.0")
    run.hold()
    job = read_job(CHECKPOINT)
    assert (job.planned, job.finished, len(job.runs)) == (1, 1, 1) and not job.unknown_why
    run.release()
    for command in (
        ("status", "--checkpoint", CHECKPOINT),
        ("savepoint", "create", "--checkpoint", CHECKPOINT, "--to", SAVEPOINT),
        ("savepoint", "inspect", SAVEPOINT),
        ("savepoint", "verify", SAVEPOINT),
        ("doctor", "--checkpoint", CHECKPOINT),
    ):
        done = CliRunner().invoke(cli.main, command)
        assert done.exit_code in (0, 1) and not isinstance(done.exception, Exception), done.output
        assert "Traceback" not in done.output
    assert verify(place_of(SAVEPOINT)).batch_id == 1


# ---- savepoints ------------------------------------------------------------------------------


def test_a_fork_and_a_move(checkpoint: Storage) -> None:
    """The original is retired, and whoever slept there is fenced."""
    made = create(CHECKPOINT, SAVEPOINT)
    asleep = log_of(checkpoint)
    assert asleep.read(2) == ()
    fork = restore(SAVEPOINT, f"{ROOT}/fork")
    assert fork.query_id not in ("", QUERY) and is_usable(CHECKPOINT)
    assert restore(SAVEPOINT, f"{ROOT}/fork").already
    moved = restore(SAVEPOINT, MOVED, Identity.SAME)
    assert (moved.query_id, moved.batch_id) == (QUERY, made.batch_id)
    assert is_usable(MOVED) and not is_usable(CHECKPOINT)
    with pytest.raises(Fenced):
        asleep.decide(decision(2))
    log = log_of(place_of(MOVED))
    assert [record.decision for record in log.read(1)] == [Decision.COMMIT]
    assert restore(SAVEPOINT, MOVED, Identity.SAME).already
    with raised(CheckpointRefused, "SAVEPOINT_ORIGINAL", MOVED):
        restore(SAVEPOINT, f"{ROOT}/second", Identity.SAME)


def test_between_a_folder_and_a_store(
    checkpoint: Storage, server: S3Server, tmp_path: Path
) -> None:
    create(CHECKPOINT, tmp_path / "savepoint")
    restore(tmp_path / "savepoint", str(tmp_path / "moved"), Identity.SAME)
    assert not is_usable(CHECKPOINT) and is_usable(str(tmp_path / "moved"))
    create(str(tmp_path / "moved"), f"{ROOT}/back")
    restore(f"{ROOT}/back", MOVED, Identity.SAME)
    assert is_usable(MOVED) and not is_usable(str(tmp_path / "moved"))


def test_nothing_is_replaced(checkpoint: Storage, server: S3Server) -> None:
    create(CHECKPOINT, SAVEPOINT)
    before = dict(server.objects)
    for place in (SAVEPOINT, f"{CHECKPOINT}/savepoint", "s3://bucket/checkpoint/savepoint"):
        with raised(CheckpointRefused, "SAVEPOINT_PLACE", place):
            create(CHECKPOINT, place)
    assert server.objects == before
    with raised(CheckpointRefused, "SAVEPOINT_PLACE", CHECKPOINT):
        restore(SAVEPOINT, CHECKPOINT)
    with raised(CheckpointRefused, "SAVEPOINT_PLACE"):
        delete(CHECKPOINT)
    delete(SAVEPOINT)
    assert not [key for key in server.objects if key.startswith("savepoint")]


def test_a_query_that_goes_on_while_it_is_moved(
    checkpoint: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was copied is never started from, and says so."""
    create(CHECKPOINT, SAVEPOINT)
    build = restore_module._build

    def slowly(*arguments: Any) -> Any:
        built = build(*arguments)
        log_of(checkpoint).decide(decision(2))
        return built

    monkeypatch.setattr(restore_module, "_build", slowly)
    with raised(CheckpointRefused, "SAVEPOINT_BEHIND", "epoch 2"):
        restore(SAVEPOINT, MOVED, Identity.SAME)
    assert is_usable(CHECKPOINT) and not is_usable(MOVED)
    with raised(CheckpointRefused, "RESTORE_UNFINISHED", MOVED, "taken back"):
        refuse_retired(place_of(MOVED))
    with raised(CheckpointRefused, "RESTORE_UNFINISHED", MOVED, "taken back"):
        restore(SAVEPOINT, MOVED)


def test_two_commands_at_one_place(checkpoint: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """They make the very same of it: a fork has one identity."""
    create(CHECKPOINT, SAVEPOINT)
    build = restore_module._build
    others: list[str] = []

    def slowly(*arguments: Any) -> Any:
        monkeypatch.setattr(restore_module, "_build", build)
        built = build(*arguments)
        others.append(restore(SAVEPOINT, MOVED).query_id)
        return built

    monkeypatch.setattr(restore_module, "_build", slowly)
    assert [restore(SAVEPOINT, MOVED).query_id] == others
    assert is_usable(MOVED)


def refused_at(server: S3Server, at: int | None) -> None:
    server.changes, server.ends_at = 0, at
    server.refusal = None


@pytest.mark.sweep
@pytest.mark.parametrize("identity", Identity)
def test_a_restore_that_is_killed_at_each_request(
    server: S3Server, tmp_path: Path, identity: Identity
) -> None:
    """The query goes on in one place, never in two. The same call finishes it."""
    seen = set()
    folder = make_checkpoint(tmp_path / "checkpoint")
    for at in every_call(CALLS_MAX):
        server.objects.clear()
        uploaded(folder, server)
        create(CHECKPOINT, SAVEPOINT)
        refused_at(server, at)
        try:
            restore(SAVEPOINT, MOVED, identity)
        except ExactumError:
            refused_at(server, None)
        else:
            assert at > 10, "it was killed at each request"
            break
        old, new = is_usable(CHECKPOINT), is_usable(MOVED)
        seen.add((old, new))
        assert identity is Identity.FORK or (old, new) != (True, True)
        again = restore(SAVEPOINT, MOVED, identity)
        assert is_usable(MOVED)
        assert is_usable(CHECKPOINT) == (identity is Identity.FORK)
        assert (again.query_id == QUERY) == (identity is Identity.SAME)
    wanted = {(True, False)} | ({(False, False)} if identity is Identity.SAME else set())
    assert wanted <= seen


@pytest.mark.sweep
def test_a_create_that_is_killed_at_each_request(server: S3Server, tmp_path: Path) -> None:
    """Half a savepoint is none; what is left can be deleted."""
    folder = make_checkpoint(tmp_path / "checkpoint")
    for at in every_call(CALLS_MAX):
        server.objects.clear()
        uploaded(folder, server)
        refused_at(server, at)
        try:
            create(CHECKPOINT, SAVEPOINT)
        except ExactumError:
            refused_at(server, None)
        else:
            assert at > 8, "it was killed at each request"
            return
        place = place_of(SAVEPOINT)
        if place.read("manifest.json") is not None:
            verify(place)
        if place.names():
            with raised(CheckpointRefused, "SAVEPOINT_PLACE", "savepoint delete"):
                create(CHECKPOINT, SAVEPOINT)
            delete(SAVEPOINT)
        assert place.names() == []
        create(CHECKPOINT, SAVEPOINT)


# ---- a store that cannot be used -----------------------------------------------------------------


def test_credentials_that_expire(checkpoint: Storage, server: S3Server) -> None:
    """In the middle: nothing is decided by it, and a start with new ones goes on."""
    log = log_of(checkpoint)
    assert log.read(2) == ()
    server.refusal = (400, "ExpiredToken")
    with pytest.raises(ExactumError):
        log.decide(decision(2))
    with raised(Unavailable, "credentials have expired"):
        checkpoint.names("commits")
    server.refusal = None
    assert log_of(checkpoint).read(2) == ()
    assert log_of(checkpoint).decide(decision(2)) == decision(2)
