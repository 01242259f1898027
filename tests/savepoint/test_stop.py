"""Who runs, who is to stop, and who may start: by files that a real process holds. Without
Spark.
"""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exactum.checkpoint import request_file, retirement
from exactum.checkpoint.known_sinks import KnownSinks, write_known_sinks
from exactum.checkpoint.run_file import RUNS_ENDING, WAITS_ENDING, RunFile, living
from exactum.checkpoint.savepoint import create as create_module
from exactum.checkpoint.savepoint import restore as restore_module
from exactum.checkpoint.savepoint.create import create
from exactum.checkpoint.savepoint.manifest import verify
from exactum.checkpoint.savepoint.restore import Identity, restore
from exactum.checkpoint.savepoint.stop import Stopped, stop
from exactum.errors import CheckpointRefused, Fenced, Unavailable
from exactum.files.decision_log import FileDecisionLog
from exactum.protocol.model import Decision, DecisionRecord, Epoch, Incarnation
from tests.kit.waiting import WAIT_MAX_S, await_true

QUERY = "0c6c5c3a-4dd2-4b0b-9e8a-111111111111"
HOLD = """
import sys, time
from pathlib import Path
from exactum.checkpoint.run_file import RunFile
run = RunFile(Path(sys.argv[1]), sys.argv[2], sys.argv[3], "0", "4.2.0", ending=sys.argv[4])
run.hold()
print("held", flush=True)
time.sleep(300)
"""
Driver = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a query without state that has completed epochs 0 and 1."""
    folder = tmp_path / "checkpoint"
    conf = {"conf": {"spark.sql.shuffle.partitions": "2"}}
    for name, content in {
        "metadata": json.dumps({"id": QUERY}),
        **{f"offsets/{n}": f'v1\n{json.dumps(conf)}\n{{"in":{{"0":{n}}}}}' for n in (0, 1)},
        **{f"commits/{n}": 'v1\n{"nextBatchWatermarkMs":0}' for n in (0, 1)},
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    decide(folder, 1)
    return folder


@pytest.fixture
def driver(checkpoint: Path) -> Iterator[Driver]:
    """Start a process that holds a run's file as a driver does, and knows nothing of requests."""
    started: list[subprocess.Popen[str]] = []

    def start(incarnation: str, ending: str = RUNS_ENDING) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, str(checkpoint), incarnation, QUERY, ending]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stdout = started[-1].stdout
        assert stdout is not None and stdout.readline() == "held\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def decide(folder: Path, batch_id: int, decision: Decision = Decision.COMMIT) -> DecisionRecord:
    log = FileDecisionLog(folder / "exactum" / "decisions", QUERY)
    record = DecisionRecord(
        Epoch(QUERY, batch_id), len(log.read(batch_id)), decision, Incarnation("a" * 16)
    )
    assert log.decide(record) == record
    return record


def test_a_run_is_seen_for_as_long_as_it_lives(checkpoint: Path, driver: Driver) -> None:
    """Whatever ends a driver, its run is over that moment; a later run clears away what it left."""
    first = driver("1" * 16)
    assert [run.pid for run in living(checkpoint)] == [first.pid]
    second = driver("2" * 16)
    assert [run.pid for run in living(checkpoint)] == [first.pid, second.pid], (
        "a standby, or a driver that is frozen"
    )
    first.kill()
    first.wait()
    assert [run.pid for run in living(checkpoint)] == [second.pid]
    second.kill()
    second.wait()
    third = driver("3" * 16)
    assert [run.pid for run in living(checkpoint)] == [third.pid]
    assert len(list((checkpoint / "exactum" / "runs").iterdir())) == 1


def test_a_driver_that_does_not_answer_is_not_waited_for_ever(
    checkpoint: Path, tmp_path: Path, driver: Driver
) -> None:
    """``--stop`` gives up when its time is over, says so, takes the request back and makes no
    savepoint.
    """
    driver("1" * 16)
    began_s = time.monotonic()
    with pytest.raises(Unavailable, match="has not seen the request"):
        create(str(checkpoint), tmp_path / "savepoint", stop_query=True, timeout_s=0.5)
    assert time.monotonic() - began_s < 30
    assert list((checkpoint / "exactum" / "requests").iterdir()) == []
    assert not (tmp_path / "savepoint").exists()


def test_a_driver_that_dies_is_not_waited_for(
    checkpoint: Path, tmp_path: Path, driver: Driver
) -> None:
    """A query that dies while it is asked to stop is stopped: the savepoint is made at once."""
    process = driver("1" * 16)

    def kill() -> None:
        await_true(
            lambda: request_file.find(checkpoint, "1" * 16) is not None, "it is asked to stop"
        )
        time.sleep(0.5)
        process.kill()

    killer = threading.Thread(target=kill)
    began_s = time.monotonic()
    killer.start()
    made = create(str(checkpoint), tmp_path / "savepoint", stop_query=True, timeout_s=WAIT_MAX_S)
    assert 0.4 < time.monotonic() - began_s < WAIT_MAX_S / 2
    killer.join()
    assert made.batch_id == 1


def test_nothing_runs(checkpoint: Path, tmp_path: Path) -> None:
    """``--stop`` where nothing runs is a mistake that is said, not a savepoint of something
    else.
    """
    with pytest.raises(CheckpointRefused, match="Nothing runs on the checkpoint"):
        create(str(checkpoint), tmp_path / "savepoint", stop_query=True)


def test_a_request_is_for_one_run_and_for_a_time(checkpoint: Path) -> None:
    """What a dead command left stops neither a later run nor, once it is too old, the run that
    it named.
    """
    fresh = request_file.ask(checkpoint, "1" * 16, stands_s=60)
    assert request_file.find(checkpoint, "1" * 16) == fresh
    assert request_file.find(checkpoint, "2" * 16) is None
    fresh.take_back(checkpoint)
    request = request_file.ask(checkpoint, "1" * 16, stands_s=0)
    assert not request.stands(checkpoint), "it is too old"
    assert request_file.find(checkpoint, "1" * 16) is None
    assert list((checkpoint / "exactum" / "requests").iterdir()) == [], "and it is cleared away"
    request.answer(checkpoint, request_file.Answer(stopped=True, batch_id=1))
    assert list((checkpoint / "exactum" / "requests").iterdir()) == [], (
        "an answer that comes too late as well"
    )


def test_a_move_fences_a_driver_that_was_asleep(checkpoint: Path, tmp_path: Path) -> None:
    """After the original was retired nobody decides under it any more, at whatever step he fell
    asleep.
    """
    create(str(checkpoint), tmp_path / "savepoint")
    asleep = FileDecisionLog(checkpoint / "exactum" / "decisions", QUERY)
    assert asleep.read(2) == ()
    restore(tmp_path / "savepoint", str(tmp_path / "moved"), Identity.SAME)
    with pytest.raises(Fenced):
        asleep.decide(DecisionRecord(Epoch(QUERY, 2), 0, Decision.COMMIT, Incarnation("b" * 16)))
    with pytest.raises(CheckpointRefused, match="is retired"):
        retirement.refuse_retired(checkpoint)
    moved = FileDecisionLog(tmp_path / "moved" / "exactum" / "decisions", QUERY)
    assert [r.decision for r in moved.read(1)] == [Decision.COMMIT]
    decide(tmp_path / "moved", 2)
    with pytest.raises(CheckpointRefused, match="is retired"):
        restore(tmp_path / "savepoint", str(tmp_path / "second"), Identity.SAME)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_move_that_comes_too_late_undoes_nothing(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The original has decided an epoch since, or does so while the savepoint is restored: it is
    not retired, and goes on; nothing of the move is left.
    """
    create(str(checkpoint), tmp_path / "savepoint")
    build = restore_module.build

    def build_slowly(*arguments: Any) -> Path:
        decide(checkpoint, 2)
        return build(*arguments)

    if when == "before":
        decide(checkpoint, 2)
    else:
        monkeypatch.setattr(restore_module, "build", build_slowly)
    with pytest.raises(CheckpointRefused, match="has gone on to epoch 2"):
        restore(tmp_path / "savepoint", str(tmp_path / "moved"), Identity.SAME)
    retirement.refuse_retired(checkpoint)
    decide(checkpoint, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "savepoint"]


@pytest.mark.parametrize("ended", [True, False])
def test_an_original_that_is_started_while_its_savepoint_is_restored(
    checkpoint: Path,
    tmp_path: Path,
    driver: Driver,
    monkeypatch: pytest.MonkeyPatch,
    ended: bool,
) -> None:
    """Its decisions lie elsewhere: what it has decided by the end of the move is not seen from
    here. It is not retired, for it alone can finish that.
    """
    write_known_sinks(checkpoint, KnownSinks(QUERY, (), frozenset(), "postgresql://db/decisions"))
    create(str(checkpoint), tmp_path / "savepoint")
    build = restore_module.build

    def build_slowly(*arguments: Any) -> Path:
        process = driver("1" * 16)
        plan = (checkpoint / "offsets" / "1").read_text()
        (checkpoint / "offsets" / "2").write_text(plan)
        if ended:
            process.kill()
            process.wait()
        return build(*arguments)

    monkeypatch.setattr(restore_module, "build", build_slowly)
    why = "has begun epoch 2 since this savepoint" if ended else "was started while the savepoint"
    with pytest.raises(CheckpointRefused, match=why):
        restore(tmp_path / "savepoint", str(tmp_path / "moved"), Identity.SAME)
    retirement.refuse_retired(checkpoint)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "savepoint"]


@pytest.mark.parametrize("place", ["elsewhere", "moved"])
def test_two_moves_at_once(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Two operators move the query at the same time: it goes on in one place, under one identity.
    The slower one is told of the other place; where it is the same one, that all is done.
    """
    create(str(checkpoint), tmp_path / "savepoint")
    build = restore_module.build

    def build_slowly(*arguments: Any) -> Path:
        monkeypatch.setattr(restore_module, "build", build)
        built = build(*arguments)
        restore(tmp_path / "savepoint", str(tmp_path / place), Identity.SAME)
        return built

    monkeypatch.setattr(restore_module, "build", build_slowly)
    if place == "moved":
        assert restore(tmp_path / "savepoint", str(tmp_path / "moved"), Identity.SAME).already
    else:
        with pytest.raises(CheckpointRefused, match=f"{tmp_path / place} took its place"):
            restore(tmp_path / "savepoint", str(tmp_path / "moved"), Identity.SAME)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted({"checkpoint", "savepoint", place})
    decide(tmp_path / place, 2)


def test_an_original_that_is_out_of_sight(checkpoint: Path, tmp_path: Path) -> None:
    """The same identity needs the original to be retired, or the word of somebody who knows that
    it is lost.
    """
    create(str(checkpoint), tmp_path / "savepoint")
    shutil.rmtree(checkpoint)
    with pytest.raises(CheckpointRefused, match="is not to be found"):
        restore(tmp_path / "savepoint", str(tmp_path / "moved"), Identity.SAME)
    restored = restore(
        tmp_path / "savepoint", str(tmp_path / "moved"), Identity.SAME, original_is_gone=True
    )
    assert restored.query_id == QUERY


def test_restoring_twice(checkpoint: Path, tmp_path: Path) -> None:
    """The same call again finds that it is done, and keeps the identity that was given; another
    one is refused.
    """
    create(str(checkpoint), tmp_path / "savepoint")
    first = restore(tmp_path / "savepoint", str(tmp_path / "fork"))
    again = restore(tmp_path / "savepoint", str(tmp_path / "fork"))
    assert not first.already and again.already
    assert first.query_id == again.query_id != QUERY
    with pytest.raises(CheckpointRefused, match="as fork, not as same"):
        restore(tmp_path / "savepoint", str(tmp_path / "fork"), Identity.SAME)
    create(str(checkpoint), tmp_path / "other")
    with pytest.raises(CheckpointRefused, match="takes precedence over a savepoint"):
        restore(tmp_path / "other", str(tmp_path / "fork"))


@pytest.mark.parametrize("original_is_gone", [False, True])
def test_a_move_replaces_no_later_epochs(
    checkpoint: Path, tmp_path: Path, original_is_gone: bool
) -> None:
    """The place that a query has moved to holds epochs after the savepoint: under the same identity
    nobody goes back behind them there either.
    """
    create(str(checkpoint), tmp_path / "savepoint")
    moved = tmp_path / "moved"

    def move(**more: bool) -> None:
        restore(tmp_path / "savepoint", str(moved), Identity.SAME, **more)

    move()
    for folder in ("offsets", "commits"):
        shutil.copy(moved / folder / "1", moved / folder / "2")
    decide(moved, 2)
    with pytest.raises(CheckpointRefused, match="has gone on to epoch 2"):
        move(replace=True, original_is_gone=original_is_gone)
    assert (moved / "commits" / "2").exists()
    decide(moved, 3)


@pytest.mark.deep
@pytest.mark.parametrize("ending", [RUNS_ENDING, WAITS_ENDING])
def test_no_checkpoint_is_replaced_under_a_query(
    checkpoint: Path, tmp_path: Path, driver: Driver, ending: str
) -> None:
    """One that was started again and has nothing to read yet runs as well."""
    create(str(checkpoint), tmp_path / "savepoint")
    driver("1" * 16, ending)
    for place in (checkpoint, tmp_path / "moved"):
        with pytest.raises(CheckpointRefused, match="runs: run 1111111111111111"):
            restore(tmp_path / "savepoint", str(place), Identity.SAME, replace=True)
    assert (checkpoint / "commits" / "1").exists()


def test_a_file_system_without_locks_is_told_once(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """``hold`` is called with every micro-batch."""

    def refuse(*of: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    run = RunFile(checkpoint, "1" * 16, QUERY, "0", "4.2.0")
    for _ in range(3):
        run.hold()
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1 and "cannot be locked" in warnings[0].message


def test_a_move_is_not_made_anew(checkpoint: Path, tmp_path: Path) -> None:
    """A supervisor repeats the call at each start. Where the checkpoint that the query had moved to
    is gone, that would go back behind what it has written there.
    """
    create(str(checkpoint), tmp_path / "savepoint")
    place = (tmp_path / "savepoint", str(tmp_path / "moved"), Identity.SAME)
    restore(*place)
    (checkpoint / "exactum" / "moved.json").unlink()  # as if the first call had died right here
    assert restore(*place).already
    shutil.rmtree(tmp_path / "moved")
    with pytest.raises(CheckpointRefused, match="now that checkpoint is gone"):
        restore(*place)
    assert not (tmp_path / "moved").exists()
    assert restore(*place, original_is_gone=True).query_id == QUERY


@pytest.mark.parametrize("place", ["checkpoint", "new", "link"])
def test_a_savepoint_is_no_place_for_a_checkpoint(
    checkpoint: Path, tmp_path: Path, place: str
) -> None:
    """Its own files would be moved aside, or a query would write into it."""
    create(str(checkpoint), tmp_path / "savepoint")
    folder = tmp_path / "savepoint" / place
    if place == "link":
        folder = tmp_path / "link"
        folder.symlink_to(tmp_path / "savepoint" / "checkpoint")
    with pytest.raises(CheckpointRefused, match="lies within the savepoint"):
        restore(tmp_path / "savepoint", str(folder), replace=True)
    verify(tmp_path / "savepoint")


def test_decisions_that_lie_elsewhere(checkpoint: Path, tmp_path: Path) -> None:
    """An epoch that was begun may be decided in a log that cannot be seen from here: no
    savepoint of it.
    """
    shutil.rmtree(checkpoint / "exactum")
    create(str(checkpoint), tmp_path / "savepoint")
    assert (
        json.loads((tmp_path / "savepoint" / "manifest.json").read_text())["decision_log"]
        == "elsewhere"
    )
    (checkpoint / "offsets" / "2").write_text((checkpoint / "offsets" / "1").read_text())
    with pytest.raises(CheckpointRefused, match="decision log lies elsewhere"):
        create(str(checkpoint), tmp_path / "second")


@pytest.mark.parametrize("place", ["postgresql://db/decisions", "/data/decisions", "damaged"])
def test_a_folder_of_decisions_that_is_not_used_any_more(
    checkpoint: Path, tmp_path: Path, place: str
) -> None:
    """It stays where the query was given another decision_log= since, and knows nothing of what is
    decided there: no savepoint of what may be, and none that says it holds the decisions.
    """
    write_known_sinks(checkpoint, KnownSinks(QUERY, (), frozenset(), place))
    if place == "damaged":
        (checkpoint / "exactum" / "sinks.json").write_text("{")
    assert create(str(checkpoint), tmp_path / "savepoint").decision_log == "elsewhere"
    (checkpoint / "offsets" / "2").write_text((checkpoint / "offsets" / "1").read_text())
    with pytest.raises(CheckpointRefused, match="decision log lies elsewhere"):
        create(str(checkpoint), tmp_path / "second")
    # The way out: the query has finished it.
    (checkpoint / "commits" / "2").write_text((checkpoint / "commits" / "1").read_text())
    assert create(str(checkpoint), tmp_path / "second").batch_id == 2


@pytest.mark.parametrize(
    "case",
    [
        ("a plan", "today's"),
        ("a run", "today's"),
        ("a run while it is copied", "today's"),
        ("nothing", "today's"),
        ("a run", "an older exactum's"),
        ("nothing", "an older exactum's"),
    ],
    ids=", ".join,
)
def test_an_original_that_may_have_decided_more_elsewhere(
    checkpoint: Path,
    tmp_path: Path,
    driver: Driver,
    case: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An epoch after the savepoint's was begun: if it is decided in a log that is not seen from
    here, the moved query would plan another one of its number. One that was planned by then, and
    never begun, does not matter. No clock tells it: a run may have begun while files were copied,
    or on a machine whose clock is behind. (A savepoint of an older exactum has only the clock.)
    """
    went_on, older = case[0], case[1] != "today's"

    def began_long_ago() -> None:
        (file,) = (checkpoint / "exactum" / "runs").iterdir()
        file.write_text(json.dumps(json.loads(file.read_text()) | {"started_ms": 1}))

    def runs_and_dies() -> None:
        process = driver("1" * 16)
        process.kill()
        process.wait()
        if not older:
            began_long_ago()

    def stop_as_a_driver_answers(folder: Path, timeout_s: float) -> Stopped:
        threading.Timer(0.2, driver("0" * 16).kill).start()
        told = stop(folder, timeout_s)
        began_long_ago()
        if went_on == "a run while it is copied":
            runs_and_dies()
        return replace(told, batch_id=1)

    write_known_sinks(checkpoint, KnownSinks(QUERY, (), frozenset(), "postgresql://db/decisions"))
    plan = (checkpoint / "offsets" / "1").read_text()
    if went_on != "a plan":
        (checkpoint / "offsets" / "2").write_text(plan)
    monkeypatch.setattr(create_module, "stop", stop_as_a_driver_answers)
    create(str(checkpoint), tmp_path / "savepoint", stop_query=True)
    made = verify(tmp_path / "savepoint")
    if older:
        manifest = tmp_path / "savepoint" / "manifest.json"
        manifest.write_bytes(replace(made, incarnations=None).to_bytes())
    if went_on == "a plan":
        (checkpoint / "offsets" / "2").write_text(plan)
    if went_on == "a run":
        runs_and_dies()
    to = (tmp_path / "savepoint", str(tmp_path / "moved"), Identity.SAME)
    if went_on == "nothing":
        assert restore(*to).batch_id == 1
        return
    with pytest.raises(CheckpointRefused, match="has begun epoch 2 since this savepoint"):
        restore(*to)
    assert not retirement.is_moved(checkpoint) and not (tmp_path / "moved").exists()
    shutil.copy(checkpoint / "commits" / "1", checkpoint / "commits" / "2")
    create(str(checkpoint), tmp_path / "newer")
    assert restore(tmp_path / "newer", *to[1:]).batch_id == 2


@pytest.mark.parametrize(
    ("query_id", "place"), [(QUERY, ""), (QUERY, None), ("a parent", "postgresql://db/decisions")]
)
def test_a_folder_of_decisions_that_is_used(
    checkpoint: Path, tmp_path: Path, query_id: str, place: str | None
) -> None:
    """What was begun and is not decided in it is left out of the savepoint. Also where an older
    exactum did not say the place, or where the file came along from the query that this one is a
    fork of.
    """
    write_known_sinks(checkpoint, KnownSinks(query_id, (), frozenset(), place))
    (checkpoint / "offsets" / "2").write_text((checkpoint / "offsets" / "1").read_text())
    made = create(str(checkpoint), tmp_path / "savepoint")
    assert (made.batch_id, made.decision_log) == (1, "checkpoint")


def test_records_of_later_epochs_stay_behind(checkpoint: Path, tmp_path: Path) -> None:
    """A savepoint of epoch 1 has nothing of epoch 2: neither its plan nor its records; what
    belongs to none is kept.
    """
    decide(checkpoint, 2, Decision.ABORT)
    control = checkpoint / "exactum" / "control" / "rules"
    control.mkdir(parents=True)
    for name in (f"{1:020d}.json", f"{2:020d}.json", "view-0.json", ".hidden.tmp"):
        (control / name).touch()
    stops = checkpoint / "exactum" / "source" / "0" / "stops"
    stops.mkdir(parents=True)
    (stops / "7.json").touch()
    (checkpoint / "offsets" / "2").write_text((checkpoint / "offsets" / "1").read_text())
    made = create(str(checkpoint), tmp_path / "savepoint")
    names = {file.path for file in made.files}
    assert "offsets/1" in names and "offsets/2" not in names
    assert {n for n in names if n.startswith("exactum/")} == {
        f"exactum/decisions/{1:020d}-0.json",
        f"exactum/control/rules/{1:020d}.json",
        "exactum/control/rules/view-0.json",
        "exactum/source/0/stops/7.json",
    }


def test_stop_needs_a_living_run(checkpoint: Path) -> None:
    """A run whose process is gone cannot be stopped."""
    with pytest.raises(CheckpointRefused, match="Nothing runs"):
        stop(checkpoint, 1)


FULL = """
import logging, resource, sys
from pathlib import Path
from exactum.checkpoint.run_file import RunFile
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
run = RunFile(Path(sys.argv[1]), sys.argv[2], sys.argv[3], "0", "4.2.0", ending=sys.argv[4])
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
run.hold()
run.release()
"""


def test_a_disk_that_takes_no_run_file(checkpoint: Path) -> None:
    """The run goes on unseen and says so; no half file is left. Closing such a file fails as
    writing it did.
    """
    command = [sys.executable, "-c", FULL, str(checkpoint), "0" * 16, QUERY, RUNS_ENDING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_MAX_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "will not see that this query runs" in done.stdout
    assert list((checkpoint / "exactum" / "runs").iterdir()) == []
