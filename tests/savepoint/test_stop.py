"""Who runs, who is to stop, and what a savepoint takes: by files that a real process holds.
Without Spark.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exactum.checkpoint import run_file
from exactum.checkpoint.query_place import place_of
from exactum.checkpoint.request_file import Requests, ask, stop
from exactum.checkpoint.run_file import RunFile, living, request_name
from exactum.checkpoint.savepoint.create import create
from exactum.checkpoint.savepoint.restore import Identity, restore
from exactum.errors import CheckpointRefused, SettingRefused, Unavailable
from exactum.protocol.model import Decision, SourceOffsets
from exactum.spark.query import Batch
from exactum.spark.run.epoch_gate import EpochGate, StopRequest
from exactum.storage.folder import Folder
from exactum.storage.storage import Storage
from tests.kit.errors import raised
from tests.kit.files.s3_server import s3_server
from tests.kit.nth_call import after, at_call
from tests.kit.python import python
from tests.kit.query_record import damage, note
from tests.kit.savepoint.stateless import (
    QUERY,
    Driver,
    complete,
    decide,
    log_of,
    make_checkpoint,
    plan,
)
from tests.kit.transactions.operator import typed
from tests.kit.waiting import WAIT_MAX_S, await_true

RUN = "1a" * 8


def is_asked(files: Storage, incarnation: str) -> bool:
    return files.read(request_name(incarnation)) is not None


FIRST = Batch(0, SourceOffsets(), first=True)


def test_a_run_is_seen_for_as_long_as_it_lives(checkpoint: Path, driver: Driver) -> None:
    """Whatever ends a driver, its run is over that moment; a later run clears away what it left."""
    first = driver("1" * 16)
    assert [run.pid for run in living(Folder(checkpoint))] == [first.pid]
    second = driver("2" * 16)
    assert [run.pid for run in living(Folder(checkpoint))] == [first.pid, second.pid], (
        "a standby, or a driver that is frozen"
    )
    first.kill()
    first.wait()
    assert [run.pid for run in living(Folder(checkpoint))] == [second.pid]
    second.kill()
    second.wait()
    third = driver("3" * 16)
    assert [run.pid for run in living(Folder(checkpoint))] == [third.pid]
    assert len(list((checkpoint / "exactum" / "runs").iterdir())) == 1


@pytest.mark.parametrize("at", range(1, 4))
def test_a_run_that_starts_beside_another_one(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Whichever folder the other one is just about to list: neither takes the other for one that is
    over.
    """
    first, second = (RunFile(Folder(checkpoint), RUN[::n], "0", "4.2.0") for n in (1, -1))
    with monkeypatch.context() as patch:
        come = at_call(patch, os, ["listdir"], at, after(second.hold))
        first.hold()
    assert come()
    assert len(living(Folder(checkpoint))) == 2
    first.release()
    second.release()


def test_a_driver_that_does_not_answer_is_not_waited_for_ever(
    checkpoint: Path, tmp_path: Path, driver: Driver
) -> None:
    """``--stop`` gives up when its time is over, says so, takes the request back and makes no
    savepoint.
    """
    driver("1" * 16)
    with raised(Unavailable, checkpoint, "1" * 16, "--timeout"):
        create(str(checkpoint), tmp_path / "savepoint", stop_query=True, timeout_s=0.5)
    assert list((checkpoint / "exactum" / "requests").iterdir()) == []
    assert not (tmp_path / "savepoint").exists()


def test_a_driver_that_dies_is_not_waited_for(
    checkpoint: Path, tmp_path: Path, driver: Driver
) -> None:
    """A query that dies while it is asked to stop is stopped: then the savepoint is made."""
    process = driver("1" * 16)

    def kill() -> None:
        await_true(lambda: is_asked(Folder(checkpoint), "1" * 16), "it is asked to stop")
        process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    made = create(str(checkpoint), tmp_path / "savepoint", stop_query=True, timeout_s=WAIT_MAX_S)
    killer.join()
    assert (made.batch_id, process.wait(WAIT_MAX_S)) == (1, -signal.SIGKILL)


def test_a_request_is_for_one_run_and_for_a_time(checkpoint: Path) -> None:
    """What a dead command left stops neither a later run nor, once it is too old, the run that
    it named. A run that begins clears it away.
    """
    files = Folder(checkpoint)
    first, second = (Requests(files, n * 16) for n in ("1", "2"))
    assert not first.is_valid()
    ask(files, "1" * 16, valid_s=60)
    assert first.is_valid() and not second.is_valid()
    ask(files, "1" * 16, valid_s=0.2)
    assert first.is_valid()
    time.sleep(0.2)
    assert not first.is_valid(), "it is too old"
    ask(files, "1" * 16, valid_s=60)
    assert first.is_valid(), "another one"
    (checkpoint / request_name("1" * 16)).write_text("half")
    assert not first.is_valid()
    run = RunFile(files, "2" * 16, "0", "4.2.0")
    ask(files, "2" * 16, valid_s=60)
    assert second.stops() and not first.stops()
    run.hold()
    assert second.is_valid()
    left = {path.name for path in (checkpoint / "exactum" / "requests").iterdir()}
    assert left == {f"{'2' * 16}.json", f"{'2' * 16}.stops.json"}
    run.release()


def test_the_clock_of_who_asks(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be an hour off."""
    requests, now_s = Requests(Folder(checkpoint), "1" * 16), time.time()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now_s - 3600)
        ask(Folder(checkpoint), "1" * 16, valid_s=60)
    assert requests.is_valid()


@pytest.mark.parametrize("in_store", [False, True])
def test_a_query_is_stopped_by_a_request(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, in_store: bool
) -> None:
    """Between two epochs, and its last word says which one was its last, however slowly that is
    written. One that is taken back lets it go on.
    """
    monkeypatch.setattr(run_file, "POLL_STORE_S", 0.05)
    with contextlib.ExitStack() as closing:
        files: Storage = Folder(checkpoint)
        if in_store:
            for name, value in closing.enter_context(s3_server("kept")).environment.items():
                monkeypatch.setenv(name, value)
            files = make_checkpoint(place_of("s3a://bucket/checkpoint"))
        with raised(CheckpointRefused, "QUERY_STOPPED", files.where):
            stop(files, 1.0)
        ended = threading.Event()
        run: Any = SimpleNamespace(
            incarnation="1" * 16,
            live=SimpleNamespace(stop=ended.set),
            still_runs=lambda: not ended.is_set(),
        )
        gate = EpochGate(run)
        monkeypatch.setattr(gate, "_is_logged", lambda _: True)
        request = StopRequest(run, files, gate)
        gate.begin(FIRST)
        ask(files, "1" * 16, valid_s=60)
        request.tend()
        files.delete([request_name("1" * 16)])
        request.tend()
        assert not gate._shut, "it goes on"
        put = type(files).put

        def slow(*of: Any, **more: Any) -> None:
            time.sleep(0.3 * ended.is_set())
            put(*of, **more)

        monkeypatch.setattr(type(files), "put", slow)

        def drive() -> None:
            await_true(lambda: is_asked(files, "1" * 16), "it is asked")
            request.tend()
            request.tend()
            assert not ended.is_set(), "its epoch is not over"
            gate.done(FIRST, SimpleNamespace(written=True))  # type: ignore[arg-type]
            request.tend()
            request.close()

        driver = threading.Thread(target=drive)
        driver.start()
        stopped = stop(files, WAIT_MAX_S)
        driver.join()
        assert (stopped.batch_id, stopped.incarnations) == (FIRST.batch_id, ("1" * 16,))
        assert files.names("exactum/requests") == []


class Stoppable:
    """A run that is between two epochs, in this process. ``stop`` is what Spark does to stop it."""

    def __init__(
        self, files: Folder, incarnation: str, stop: Callable[[], None] = lambda: None
    ) -> None:
        self.stopped = threading.Event()

        def stops() -> None:
            stop()
            self.stopped.set()

        run: Any = SimpleNamespace(
            incarnation=incarnation,
            live=SimpleNamespace(stop=stops),
            still_runs=lambda: not self.stopped.is_set(),
        )
        self.request = StopRequest(run, files, EpochGate(run))

    def tend(self) -> None:
        """In a thread of its own, as housekeeping does."""

        def tends() -> None:
            while not self.stopped.wait(0.01):
                self.request.tend()

        threading.Thread(target=tends, daemon=True).start()


def test_a_query_that_stops_as_the_time_is_over(checkpoint: Path, tmp_path: Path) -> None:
    """It cannot be kept from it any more: nobody is told that it goes on, and the savepoint is made."""
    files = Folder(checkpoint)
    is_over = lambda: await_true(lambda: not is_asked(files, "1" * 16), "the time is over")  # noqa: E731
    run = Stoppable(files, "1" * 16, is_over)
    run.tend()
    create(str(checkpoint), tmp_path / "savepoint", stop_query=True, timeout_s=2)
    assert run.stopped.is_set()
    assert list((checkpoint / "exactum" / "requests").iterdir()) == []


def test_a_request_that_is_taken_back_at_the_last_moment(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right before the query would say that it stops: it goes on, as the one who asked was told."""
    files = Folder(checkpoint)
    run = Stoppable(files, "1" * 16)
    ask(files, "1" * 16, valid_s=60)
    run.request.tend()
    take_back = lambda: files.delete([request_name("1" * 16)])  # noqa: E731
    with monkeypatch.context() as patch:
        came = at_call(patch, Folder, ["put"], 1, after(take_back))
        run.request.tend()
    assert came()
    run.request.tend()
    time.sleep(0.2)
    assert not run.stopped.is_set()
    run.request.close()


def test_one_of_two_runs_does_not_answer(checkpoint: Path, driver: Driver) -> None:
    """A frozen one, and the one that took over from it: that this has stopped is said."""
    driver("1" * 16)
    run = Stoppable(Folder(checkpoint), "2" * 16)
    run.tend()
    with raised(Unavailable, "1" * 16, "a run of it has stopped", "--timeout") as told:
        stop(Folder(checkpoint), 3)
    await_true(run.stopped.is_set, "the other one has stopped")
    assert "it goes on" not in str(told.value)


def test_a_query_that_is_started_again_at_once(
    checkpoint: Path, tmp_path: Path, driver: Driver
) -> None:
    """By its platform, say, while the savepoint is made: nobody is told that it is stopped."""
    first = driver("1" * 16)

    def again() -> None:
        await_true(lambda: is_asked(Folder(checkpoint), "1" * 16), "it is asked to stop")
        driver("2" * 16)
        first.kill()

    starter = threading.Thread(target=again)
    starter.start()
    of = ("--checkpoint", checkpoint, "--to", tmp_path / "savepoint")
    told = typed("savepoint", "create", *of, "--stop", status=0).output
    starter.join()
    assert "was stopped" in told and "it runs again" in told


@pytest.mark.parametrize("place", [None, "postgresql://db/decisions", "/data/decisions"])
def test_decisions_that_lie_elsewhere(checkpoint: Path, tmp_path: Path, place: str | None) -> None:
    """There never were any here; or the query was given another decision_log= since, and the folder
    knows nothing of what is decided there. No savepoint of an epoch that was begun and may be
    decided, and none that says it holds the decisions.
    """
    if place is None:
        shutil.rmtree(checkpoint / "exactum")
    else:
        note(checkpoint, QUERY, decision_log=place)
    assert create(str(checkpoint), tmp_path / "savepoint").decision_log == "elsewhere"
    plan(Folder(checkpoint), 2)
    with raised(CheckpointRefused, "SAVEPOINT_TOO_EARLY", checkpoint, "decision log"):
        create(str(checkpoint), tmp_path / "second")
    # The way out: the query has finished it.
    complete(Folder(checkpoint), 2)
    assert create(str(checkpoint), tmp_path / "second").batch_id == 2


def test_a_damaged_record_of_the_query(checkpoint: Path, tmp_path: Path) -> None:
    """Nobody can tell where its decisions are, and nobody could restore a savepoint of it."""
    note(checkpoint, QUERY)
    damage(checkpoint)
    with raised(CheckpointRefused, "CHECKPOINT_DAMAGED", checkpoint, "query/"):
        create(str(checkpoint), tmp_path / "savepoint")


@pytest.mark.parametrize(
    ("where", "error", "facts"),
    [
        ("/proc/nowhere", Unavailable, ["/proc/nowhere", "repeat the command"]),
        ("file", SettingRefused, ["FOLDER_ACCESS", "file", "Move away the file"]),
    ],
)
def test_a_place_that_cannot_be_made(
    checkpoint: Path, tmp_path: Path, where: str, error: type[Exception], facts: list[str]
) -> None:
    """The command fails, and no query: nobody is told to start one. Nothing is left. ``make chaos``
    does the same with a full disk.
    """
    create(str(checkpoint), tmp_path / "savepoint")
    (tmp_path / "file").write_text("no folder")
    before = sorted(tmp_path.rglob("*"))
    saved, moved = tmp_path / where / "savepoint", str(tmp_path / where / "moved")
    for command in (
        lambda: create(str(checkpoint), saved),
        lambda: restore(tmp_path / "savepoint", moved, Identity.SAME),
    ):
        with raised(error, *facts) as told:
            command()
        assert "Start the query" not in str(told.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_records_of_later_epochs_stay_behind(checkpoint: Path, tmp_path: Path) -> None:
    """A savepoint of epoch 1 has nothing of epoch 2: neither its plan nor its records; what
    belongs to none is kept.
    """
    decide(Folder(checkpoint), 2, Decision.ABORT)
    control = checkpoint / "exactum" / "control" / "rules"
    control.mkdir(parents=True)
    for name in (f"{1:020d}-{RUN}.json", f"{2:020d}-{RUN}.json", ".hidden.tmp"):
        (control / name).touch()
    note(checkpoint, QUERY, log_id=log_of(Folder(checkpoint)).log_id())
    plan(Folder(checkpoint), 2)
    made = create(str(checkpoint), tmp_path / "savepoint")
    names = {file.path for file in made.files}
    assert "offsets/1" in names and "offsets/2" not in names
    assert {n for n in names if n.startswith("exactum/")} == {
        f"exactum/decisions/{1:020d}-0.json",
        "exactum/decisions/log-id",
        f"exactum/control/rules/{1:020d}-{RUN}.json",
        "exactum/query/0.json",
    }


def test_a_file_system_without_locks_is_told_once(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """``hold`` is called with every micro-batch."""

    def refuse(*of: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    run = RunFile(Folder(checkpoint), "1" * 16, "0", "4.2.0")
    for _ in range(3):
        run.hold()
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1 and "cannot be locked" in warnings[0].message


FULL = """
import logging, resource, sys
from pathlib import Path
from exactum.checkpoint.run_file import RunFile
from exactum.storage.folder import Folder
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
run = RunFile(Folder(Path(sys.argv[1])), sys.argv[2], "0", "4.2.0")
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
run.hold()
run.release()
"""


def test_a_disk_that_takes_no_run_file(checkpoint: Path) -> None:
    """The run goes on unseen and says so; no half file is left. Closing such a file fails as
    writing it did.
    """
    done = python(FULL, checkpoint, "0" * 16)
    assert "will not see that this query runs" in done.stdout
    assert list((checkpoint / "exactum" / "runs").iterdir()) == []
