"""Who may start from a savepoint, and what becomes of the checkpoints that make room: by files,
without Spark, in a folder and in an object store.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from exactum.checkpoint import retirement
from exactum.checkpoint.layout import STAGING
from exactum.checkpoint.query_place import place_of
from exactum.checkpoint.query_record import record_of
from exactum.checkpoint.request_file import Stopped
from exactum.checkpoint.run_file import RunFile
from exactum.checkpoint.savepoint import create as create_module
from exactum.checkpoint.savepoint import restore as restore_module
from exactum.checkpoint.savepoint.create import create, delete
from exactum.checkpoint.savepoint.manifest import copy_files, verify
from exactum.checkpoint.savepoint.restore import Identity, Restored, restore
from exactum.errors import CheckpointRefused, Fenced
from exactum.protocol.model import Decision, DecisionRecord, Epoch, Incarnation
from exactum.storage.folder import Folder
from exactum.storage.storage import Storage
from tests.kit.errors import raised
from tests.kit.savepoint.stateless import (
    QUERY,
    complete,
    decide,
    is_there,
    is_usable,
    log_of,
    make_checkpoint,
    plan,
)

pytestmark = pytest.mark.usefixtures("no_patience")

ELSEWHERE = "postgresql://db/decisions"
FIRST, SECOND = "0" * 16, "1" * 16
RUN = Incarnation("b" * 16)


@pytest.fixture
def checkpoint(root: str) -> Storage:
    """Of a query without state that has completed epochs 0 and 1."""
    return make_checkpoint(place_of(f"{root}/checkpoint"))


@pytest.fixture
def savepoint(checkpoint: Storage, root: str) -> str:
    """Of epoch 1."""
    create(checkpoint.where, f"{root}/savepoint")
    return f"{root}/savepoint"


@pytest.fixture
def moved(root: str) -> str:
    return f"{root}/moved"


@pytest.fixture
def while_copying(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Do something once, while the files of the next ``restore`` are copied."""
    build = restore_module._build

    def arrange(do: Callable[[], object]) -> None:
        def build_slowly(*arguments: Any) -> None:
            monkeypatch.setattr(restore_module, "_build", build)
            build(*arguments)
            do()

        monkeypatch.setattr(restore_module, "_build", build_slowly)

    return arrange


def elsewhere(checkpoint: Storage) -> None:
    """Its decisions lie there."""
    record_of(checkpoint, QUERY).change(lambda record: changed(record, decision_log=ELSEWHERE))


def ran(files: Storage, incarnation: str) -> None:
    run = RunFile(files, incarnation, "0", "4.2.0")
    run.hold()
    run.release()


def test_a_move_fences_a_driver_that_was_asleep(
    root: str, checkpoint: Storage, savepoint: str, moved: str
) -> None:
    """After the original was retired nobody decides under it any more, at whatever step he fell
    asleep.
    """
    asleep = log_of(checkpoint)
    assert asleep.read(2) == ()
    restore(savepoint, moved, Identity.SAME)
    with raised(Fenced, "retired.json") as fenced:
        asleep.decide(DecisionRecord(Epoch(QUERY, 2), 0, Decision.COMMIT, RUN))
    with raised(CheckpointRefused, "LOG_PRUNED", "Batch 2", "retired.json") as read:
        asleep.read(2)
    for text in (str(fenced.value), str(read.value)):
        assert "99999" not in text and "new checkpoint" not in text
    with raised(CheckpointRefused, "CHECKPOINT_RETIRED", checkpoint.where, moved):
        retirement.refuse_retired(checkpoint)
    assert [r.decision for r in log_of(place_of(moved)).read(1)] == [Decision.COMMIT]
    decide(place_of(moved), 2)
    with raised(CheckpointRefused, "SAVEPOINT_ORIGINAL", checkpoint.where, moved):
        restore(savepoint, f"{root}/second", Identity.SAME)


def goes_on(checkpoint: Storage) -> None:
    decide(checkpoint, 2)


def is_started(checkpoint: Storage) -> RunFile:
    run = RunFile(checkpoint, SECOND, "0", "4.2.0")
    run.hold()
    return run


def dies_in_an_epoch(checkpoint: Storage) -> None:
    """Its decisions lie elsewhere: nobody knows whether it was decided."""
    elsewhere(checkpoint)
    plan(checkpoint, 2)


def replays(checkpoint: Storage) -> None:
    if isinstance(checkpoint, Folder):
        checkpoint.open("exactum/replays")
    checkpoint.put(f"exactum/replays/{0:020d}-0.json", b"")


LATE = {
    goes_on: ("SAVEPOINT_BEHIND", "epoch 2"),
    is_started: ("QUERY_RUNS", SECOND),
    dies_in_an_epoch: ("SAVEPOINT_BEHIND", "epoch 2"),
    replays: ("SAVEPOINT_BEHIND", "dead letters"),
}


@pytest.mark.parametrize(
    ("root", "when"),
    [("folder", "before"), ("folder", "meanwhile"), ("store", "meanwhile")],
    indirect=["root"],
)
@pytest.mark.parametrize("what", LATE, ids=lambda what: what.__name__)
def test_a_move_that_comes_too_late_undoes_nothing(
    checkpoint: Storage,
    savepoint: str,
    moved: str,
    while_copying: Callable[[Callable[[], object]], None],
    what: Callable[[Storage], object],
    when: str,
) -> None:
    """The original has done something since, or does so while files are copied: it is not retired,
    and goes on. What was copied is never started from, and says so.
    """
    kept: list[object] = []  # a run that is not, has ended
    if when == "before":
        kept.append(what(checkpoint))
    else:
        while_copying(lambda: kept.append(what(checkpoint)))
    with raised(CheckpointRefused, *LATE[what]):
        restore(savepoint, moved, Identity.SAME)
    assert is_usable(checkpoint.where)
    decide(checkpoint, 2)
    assert is_there(moved) is (when == "meanwhile")
    if when == "meanwhile":
        for start in (
            lambda: retirement.refuse_retired(place_of(moved)),
            lambda: restore(savepoint, moved),
        ):
            with raised(CheckpointRefused, "RESTORE_UNFINISHED", moved, "taken back"):
                start()
    for run in kept:
        if isinstance(run, RunFile):
            run.release()


def test_a_refused_move_fences_nobody(
    checkpoint: Storage,
    savepoint: str,
    moved: str,
    while_copying: Callable[[Callable[[], object]], None],
) -> None:
    """A query that was started while files were copied goes on, also while the move waits to see
    whether it ends.
    """
    log, over = log_of(checkpoint), threading.Event()
    kept: list[RunFile | Future[None]] = []

    def decides() -> None:
        for batch_id in itertools.count(2):
            record = DecisionRecord(Epoch(QUERY, batch_id), 0, Decision.COMMIT, RUN)
            assert log.decide(record) == record
            if over.is_set():
                return

    with ThreadPoolExecutor() as pool:
        while_copying(lambda: kept.extend((is_started(checkpoint), pool.submit(decides))))
        with raised(CheckpointRefused, "QUERY_RUNS", SECOND):
            restore(savepoint, moved, Identity.SAME)
        over.set()
        run, decided = kept
        assert isinstance(run, RunFile) and isinstance(decided, Future)
        run.release()
        decided.result()


@pytest.mark.parametrize("place", ["elsewhere", "moved"])
def test_two_moves_at_once(
    root: str,
    checkpoint: Storage,
    savepoint: str,
    moved: str,
    while_copying: Callable[[Callable[[], object]], None],
    place: str,
) -> None:
    """Two operators move the query at the same time: it goes on in one place, under one identity.
    Who is slower, and moves it elsewhere, is told of it.
    """
    place = f"{root}/{place}"
    while_copying(lambda: restore(savepoint, place, Identity.SAME))
    told = raised(CheckpointRefused, "SAVEPOINT_ORIGINAL", place)
    with contextlib.nullcontext() if place == moved else told:
        restore(savepoint, moved, Identity.SAME)
    assert is_usable(place) and not is_usable(checkpoint.where)
    assert place == moved or not is_usable(moved)
    decide(place_of(place), 2)
    assert restore(savepoint, place, Identity.SAME).already


def test_two_forks_at_once(
    root: str, savepoint: str, while_copying: Callable[[Callable[[], object]], None]
) -> None:
    """In one place they make the very same of it: a fork has one identity."""
    first: list[Restored] = []
    while_copying(lambda: first.append(restore(savepoint, f"{root}/fork")))
    assert restore(savepoint, f"{root}/fork").query_id == first[0].query_id
    assert is_usable(f"{root}/fork")


def test_two_savepoints_at_one_place(
    checkpoint: Storage, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second command began while the place was empty, and the first one has ended meanwhile: its
    savepoint stays as it is.
    """
    place = f"{root}/savepoint"
    cut_at = create_module.cut.cut_at

    def slowly(files: Storage, batch_id: int) -> Any:
        monkeypatch.setattr(create_module.cut, "cut_at", cut_at)
        create(checkpoint.where, place)
        return cut_at(files, batch_id)

    monkeypatch.setattr(create_module.cut, "cut_at", slowly)
    with raised(CheckpointRefused, "SAVEPOINT_PLACE", place):
        create(checkpoint.where, place)
    assert sorted(place_of(place).names()) == ["checkpoint", "manifest.json"]
    verify(place_of(place))


def test_an_epoch_in_doubt_is_finished_first(root: str, checkpoint: Storage) -> None:
    """A driver died after the decision and before Spark's commit log: no savepoint until a start
    has finished it.
    """
    plan(checkpoint, 2)
    decide(checkpoint, 2)
    with raised(CheckpointRefused, "SAVEPOINT_TOO_EARLY", checkpoint.where, "epoch 2"):
        create(checkpoint.where, f"{root}/savepoint")
    assert not is_there(f"{root}/savepoint")
    complete(checkpoint, 2)
    assert create(checkpoint.where, f"{root}/savepoint").batch_id == 2


def test_rows_that_wait_are_left_out(root: str, checkpoint: Storage, moved: str) -> None:
    """Those in the staging are their query's: neither a savepoint nor what starts from it has them."""
    waiting = checkpoint.below(STAGING).below("0123456789abcdef")
    if isinstance(waiting, Folder):
        waiting.open()
    waiting.put("rows.staged", b"rows")
    made = create(checkpoint.where, f"{root}/savepoint")
    assert made.files and not any("staging" in file.path for file in made.files)
    restore(f"{root}/savepoint", moved, Identity.SAME)
    assert is_usable(moved) and not place_of(f"{moved}/{STAGING}").names()
    assert waiting.read("rows.staged") == b"rows"


def content_of(savepoint: str) -> dict[str, bytes | None]:
    place = place_of(savepoint)
    return {entry.name: place.read(entry.name) for entry in place.entries()}


def test_nothing_is_replaced(root: str, checkpoint: Storage, savepoint: str) -> None:
    """What is there stays: neither a savepoint nor a file is written over, nor is a checkpoint."""
    before = content_of(savepoint)
    inside = f"{checkpoint.where}/savepoint"
    for place in (savepoint, inside, inside.replace("s3a:", "s3:")):
        with raised(CheckpointRefused, "SAVEPOINT_PLACE", place):
            create(checkpoint.where, place)
    used = place_of(f"{root}/used")
    if isinstance(used, Folder):
        used.open()
    used.put("file", b"")
    for place in (checkpoint.where, used.where):
        with raised(CheckpointRefused, "SAVEPOINT_PLACE", place, "--checkpoint"):
            restore(savepoint, place)
    with raised(CheckpointRefused, "SAVEPOINT_PLACE", checkpoint.where):
        delete(checkpoint.where)
    assert content_of(savepoint) == before
    delete(savepoint)
    assert not is_there(savepoint)


def test_an_original_that_is_out_of_sight(checkpoint: Storage, savepoint: str, moved: str) -> None:
    """The same identity needs the original to be retired, or the word of somebody who knows that
    it is lost.
    """
    checkpoint.remove()
    with raised(CheckpointRefused, "SAVEPOINT_ORIGINAL", checkpoint.where):
        restore(savepoint, moved, Identity.SAME)
    restored = restore(savepoint, moved, Identity.SAME, original_is_gone=True)
    assert restored.query_id == QUERY


def test_restoring_twice(root: str, checkpoint: Storage, savepoint: str) -> None:
    """The same call again finds that it is done, and keeps the identity that was given; another
    one is refused.
    """
    fork = f"{root}/fork"
    first, again = restore(savepoint, fork), restore(savepoint, fork)
    assert not first.already and again.already
    assert first.query_id == again.query_id not in ("", QUERY)
    assert is_usable(fork) and is_usable(checkpoint.where)
    with raised(CheckpointRefused, "SAVEPOINT_PLACE", fork, "fork", "same"):
        restore(savepoint, fork, Identity.SAME)
    create(checkpoint.where, f"{root}/other")
    with raised(CheckpointRefused, "SAVEPOINT_PLACE", fork, "another --checkpoint"):
        restore(f"{root}/other", fork)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_moved_query_never_goes_back(
    root: str, checkpoint: Storage, savepoint: str, moved: str, is_lost: bool
) -> None:
    """A supervisor repeats the call at each start. Under the same identity nobody goes back behind
    what the query has written in its new place, be that checkpoint there or gone.
    """
    restore(savepoint, moved, Identity.SAME)
    complete(place_of(moved), 2)
    decide(place_of(moved), 2)
    if is_lost:
        place_of(moved).remove()
        with raised(CheckpointRefused, "SAVEPOINT_ORIGINAL", moved):
            restore(savepoint, moved, Identity.SAME)
        restored = restore(savepoint, moved, Identity.SAME, original_is_gone=True)
        assert restored.query_id == QUERY
        return
    for is_gone in (False, True):
        assert restore(savepoint, moved, Identity.SAME, original_is_gone=is_gone).already
        with raised(CheckpointRefused, "SAVEPOINT_ORIGINAL", moved):
            restore(savepoint, f"{root}/second", Identity.SAME)
    decide(place_of(moved), 3)


def test_a_query_moves_there_and_back(
    root: str, checkpoint: Storage, savepoint: str, moved: str
) -> None:
    """To the place that it has left, once that is removed."""
    restore(savepoint, moved, Identity.SAME)
    complete(place_of(moved), 2)
    decide(place_of(moved), 2)
    create(moved, f"{root}/later")
    with raised(CheckpointRefused, "SAVEPOINT_PLACE", checkpoint.where):
        restore(f"{root}/later", checkpoint.where, Identity.SAME)
    assert is_usable(moved)
    checkpoint.remove()
    back = restore(f"{root}/later", checkpoint.where, Identity.SAME)
    assert (back.query_id, back.batch_id) == (QUERY, 2)
    assert is_usable(checkpoint.where) and not is_usable(moved)


@pytest.mark.parametrize("root", ["folder"], indirect=True)
def test_a_move_to_a_place_that_served_before(
    root: str,
    checkpoint: Storage,
    savepoint: str,
    moved: str,
    while_copying: Callable[[Callable[[], object]], None],
) -> None:
    """It is taken back: that gives back nothing of the earlier move to this place."""
    third = f"{root}/third"
    restore(savepoint, moved, Identity.SAME)
    create(moved, f"{root}/later")
    restore(f"{root}/later", third, Identity.SAME)
    place_of(moved).remove()
    create(third, f"{root}/newest")
    while_copying(lambda: decide(place_of(third), 2))
    with raised(CheckpointRefused, "SAVEPOINT_BEHIND", third):
        restore(f"{root}/newest", moved, Identity.SAME)
    with raised(CheckpointRefused, "RESTORE_UNFINISHED", moved):
        restore(savepoint, moved, Identity.SAME)
    assert is_usable(third) and not is_usable(checkpoint.where)


@pytest.mark.parametrize("root", ["store"], indirect=True)
def test_between_a_folder_and_a_store(
    root: str, checkpoint: Storage, moved: str, tmp_path: Path
) -> None:
    create(checkpoint.where, tmp_path / "savepoint")
    restore(tmp_path / "savepoint", str(tmp_path / "moved"), Identity.SAME)
    assert not is_usable(checkpoint.where) and is_usable(str(tmp_path / "moved"))
    create(str(tmp_path / "moved"), f"{root}/back")
    restore(f"{root}/back", moved, Identity.SAME)
    assert is_usable(moved) and not is_usable(str(tmp_path / "moved"))


def test_a_copy_that_is_no_checkpoint_has_no_savepoint(
    root: str,
    checkpoint: Storage,
    savepoint: str,
    moved: str,
    while_copying: Callable[[Callable[[], object]], None],
) -> None:
    """Not finished, or taken back: it has the identity of the query, which goes on where it was."""

    def save() -> None:
        with raised(CheckpointRefused, "RESTORE_UNFINISHED", moved):
            create(moved, f"{root}/later")
        assert not is_there(f"{root}/later")

    while_copying(lambda: (save(), goes_on(checkpoint)))
    with raised(CheckpointRefused, "SAVEPOINT_BEHIND"):
        restore(savepoint, moved, Identity.SAME)
    save()


@pytest.mark.parametrize("identity", Identity)
def test_a_savepoint_that_is_deleted_while_it_is_copied(
    checkpoint: Storage,
    savepoint: str,
    moved: str,
    monkeypatch: pytest.MonkeyPatch,
    identity: Identity,
) -> None:
    """Says so, and the query is where it was."""

    def too_late(*files: Any) -> Any:
        delete(savepoint)
        return copy_files(*files)

    monkeypatch.setattr(restore_module, "copy_files", too_late)
    with raised(CheckpointRefused, "SAVEPOINT_DAMAGED", savepoint):
        restore(savepoint, moved, identity)
    assert is_usable(checkpoint.where) and not is_usable(moved)


@pytest.mark.parametrize("root", ["folder"], indirect=True)
@pytest.mark.parametrize("place", ["checkpoint", "new", "link"])
def test_a_savepoint_is_no_place_for_a_checkpoint(savepoint: str, place: str) -> None:
    """A query would write into it."""
    folder = Path(savepoint) / place
    if place == "link":
        folder = Path(savepoint).with_name("link")
        folder.symlink_to(Path(savepoint) / "checkpoint")
    with raised(CheckpointRefused, "SAVEPOINT_PLACE", folder, savepoint):
        restore(savepoint, str(folder))
    verify(place_of(savepoint))


@pytest.mark.parametrize(
    ("root", "since"),
    [
        ("folder", "nothing"),
        ("folder", "a plan"),
        ("folder", "a run"),
        ("folder", "a run while it is copied"),
        ("store", "a run while it is copied"),
    ],
    indirect=["root"],
)
def test_an_original_that_may_have_decided_more_elsewhere(
    root: str, checkpoint: Storage, moved: str, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    """If an epoch after the savepoint's is decided in a log that is not seen from here, the moved
    query would plan another one of its number. One that the stopped query had planned by then, and
    never begun, does not matter.
    """

    def stop_as_a_driver_answers(files: Storage, timeout_s: float) -> Stopped:
        ran(files, FIRST)
        if since == "a run while it is copied":
            ran(files, SECOND)
        return Stopped(1, (FIRST,))

    elsewhere(checkpoint)
    monkeypatch.setattr(create_module, "stop", stop_as_a_driver_answers)
    savepoint = f"{root}/savepoint"
    if since == "a plan":
        create(checkpoint.where, savepoint)  # nobody has said that it is at rest
        plan(checkpoint, 2)
    else:
        plan(checkpoint, 2)
        create(checkpoint.where, savepoint, stop_query=True)
    if since == "a run":
        ran(checkpoint, SECOND)
    if since == "nothing":
        assert restore(savepoint, moved, Identity.SAME).batch_id == 1
        return
    with raised(CheckpointRefused, "SAVEPOINT_BEHIND", checkpoint.where, "epoch 2"):
        restore(savepoint, moved, Identity.SAME)
    assert is_usable(checkpoint.where) and not is_there(moved)
    complete(checkpoint, 2)
    create(checkpoint.where, f"{root}/newer")
    assert restore(f"{root}/newer", moved, Identity.SAME).batch_id == 2
