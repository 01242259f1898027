"""Checkpoints in an object store: who runs there, the history, and commands. Without Spark;
`make objects` has queries on a real server. Savepoints: test_restore.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from exactum.checkpoint import run_file
from exactum.checkpoint.query_place import place_of
from exactum.checkpoint.run_file import RunFile, living, runs
from exactum.checkpoint.savepoint.manifest import verify
from exactum.errors import ExactumError, Unavailable
from exactum.monitor import history
from exactum.monitor.fact import Fact
from exactum.monitor.history import HistoryWriter
from exactum.monitor.job import read_job
from exactum.monitor.job_history import HistoryReader, JobHistory
from exactum.ops import cli
from exactum.storage.storage import Storage
from tests.kit.errors import raised
from tests.kit.files.s3_server import S3Server, s3_server
from tests.kit.savepoint.stateless import QUERY, decide, log_of, make_checkpoint
from tests.kit.waiting import await_true

CHECKPOINT, SAVEPOINT = "s3a://bucket/checkpoint", "s3a://bucket/savepoint"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server("kept") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def checkpoint(server: S3Server) -> Storage:
    """Of a query without state that has completed epochs 0 and 1; with the empty objects by which
    Hadoop marks folders, full ones and an empty one.
    """
    marked = ("", "commits/", "offsets/", "sources/0/", "state/0/1/")
    server.objects.update({f"checkpoint/{folder}": b"" for folder in marked})
    return make_checkpoint(place_of(CHECKPOINT))


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
    server.refusal, changes = (403, "AccessDenied"), server.changes
    await_true(lambda: server.changes > changes, "a beat is refused")
    server.refusal = None
    del server.objects[name]
    await_true(lambda: name in server.objects, "it beats again")
    run.release()
    time.sleep(0.2)
    assert json.loads(server.objects[name])["over"], "no beat comes behind the end"


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


# ---- a store that cannot be used -----------------------------------------------------------------


def test_credentials_that_expire(checkpoint: Storage, server: S3Server) -> None:
    """In the middle: nothing is decided by it, and a start with new ones goes on."""
    log = log_of(checkpoint)
    assert log.read(2) == ()
    server.refusal = (400, "ExpiredToken")
    with pytest.raises(ExactumError):
        decide(checkpoint, 2)
    with raised(Unavailable, "credentials have expired"):
        checkpoint.names("commits")
    server.refusal = None
    assert log_of(checkpoint).read(2) == ()
    decide(checkpoint, 2)
