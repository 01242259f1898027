"""Who may start from a savepoint, and what becomes of the checkpoints that make room: by files,
without Spark.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exactum.checkpoint import retirement
from exactum.checkpoint.query_place import query_id_of
from exactum.checkpoint.request_file import Stopped
from exactum.checkpoint.retirement import Retirement
from exactum.checkpoint.savepoint import create as create_module
from exactum.checkpoint.savepoint import restore as restore_module
from exactum.checkpoint.savepoint.create import create, delete
from exactum.checkpoint.savepoint.manifest import verify
from exactum.checkpoint.savepoint.restore import Identity, Restored, restore
from exactum.errors import CheckpointRefused, Fenced, Unavailable
from exactum.files.slot_log import SlotLog
from exactum.protocol.model import Decision, DecisionRecord, Epoch, Incarnation
from exactum.storage.folder import Folder
from exactum.storage.storage import Storage
from exactum.testing.faults import Crash
from tests.kit.errors import raised
from tests.kit.every_call import every_call
from tests.kit.query_record import note
from tests.kit.savepoint.killed import killed_at
from tests.kit.savepoint.stateless import (
    QUERY,
    Driver,
    complete,
    decide,
    make_checkpoint,
    plan,
)

ELSEWHERE = "postgresql://db/decisions"


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore_module, "ENDING_S", 0.2)


@pytest.fixture
def savepoint(checkpoint: Path, tmp_path: Path) -> Path:
    """Of epoch 1."""
    create(str(checkpoint), tmp_path / "savepoint")
    return tmp_path / "savepoint"


@pytest.fixture
def while_copying(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Do something once, while the files of the next ``restore`` are copied."""
    build = restore_module._build

    def arrange(do: Callable[[], object]) -> None:
        def build_slowly(*arguments: Any) -> Retirement:
            monkeypatch.setattr(restore_module, "_build", build)
            built = build(*arguments)
            do()
            return built

        monkeypatch.setattr(restore_module, "_build", build_slowly)

    return arrange


def is_usable(checkpoint: Path) -> bool:
    """Whether a query starts from it, and is not fenced there."""
    if not (checkpoint / "metadata").exists():
        return False
    try:
        retirement.refuse_retired(Folder(checkpoint))
    except CheckpointRefused:
        return False
    log = SlotLog(
        Folder(checkpoint / "exactum" / "decisions"), query_id_of(Folder(checkpoint)) or ""
    )
    log.read(2)
    return True


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_move_fences_a_driver_that_was_asleep(
    checkpoint: Path, savepoint: Path, tmp_path: Path
) -> None:
    """After the original was retired nobody decides under it any more, at whatever step he fell
    asleep.
    """
    asleep = SlotLog(Folder(checkpoint / "exactum" / "decisions"), QUERY)
    assert asleep.read(2) == ()
    restore(savepoint, str(tmp_path / "moved"), Identity.SAME)
    with pytest.raises(Fenced):
        asleep.decide(DecisionRecord(Epoch(QUERY, 2), 0, Decision.COMMIT, Incarnation("b" * 16)))
    with raised(CheckpointRefused, "CHECKPOINT_RETIRED", checkpoint, tmp_path / "moved"):
        retirement.refuse_retired(Folder(checkpoint))
    moved = SlotLog(Folder(tmp_path / "moved" / "exactum" / "decisions"), QUERY)
    assert [r.decision for r in moved.read(1)] == [Decision.COMMIT]
    decide(tmp_path / "moved", 2)
    with raised(CheckpointRefused, "SAVEPOINT_ORIGINAL", checkpoint, tmp_path / "moved"):
        restore(savepoint, str(tmp_path / "second"), Identity.SAME)


def goes_on(checkpoint: Path, driver: Driver) -> None:
    decide(checkpoint, 2)


def is_started(checkpoint: Path, driver: Driver) -> None:
    driver("1" * 16)


def dies_in_an_epoch(checkpoint: Path, driver: Driver) -> None:
    """Its decisions lie elsewhere: nobody knows whether it was decided."""
    note(checkpoint, QUERY, decision_log=ELSEWHERE)
    plan(checkpoint, 2)


def replays(checkpoint: Path, driver: Driver) -> None:
    (checkpoint / "exactum" / "replays").mkdir(exist_ok=True)
    (checkpoint / "exactum" / "replays" / f"{0:020d}-0.json").touch()


LATE = {
    goes_on: ("SAVEPOINT_BEHIND", "epoch 2"),
    is_started: ("QUERY_RUNS", "1" * 16),
    dies_in_an_epoch: ("SAVEPOINT_BEHIND", "epoch 2"),
    replays: ("SAVEPOINT_BEHIND", "dead letters"),
}


@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize("what", LATE, ids=lambda what: what.__name__)
def test_a_move_that_comes_too_late_undoes_nothing(
    checkpoint: Path,
    savepoint: Path,
    tmp_path: Path,
    driver: Driver,
    while_copying: Callable[[Callable[[], object]], None],
    what: Callable[[Path, Driver], None],
    when: str,
) -> None:
    """The original has done something since, or does so while files are copied: it is not retired,
    and goes on; nothing of the move is left.
    """
    if when == "before":
        what(checkpoint, driver)
    else:
        while_copying(lambda: what(checkpoint, driver))
    with raised(CheckpointRefused, *LATE[what]):
        restore(savepoint, str(tmp_path / "moved"), Identity.SAME)
    assert is_usable(checkpoint)
    decide(checkpoint, 2)
    assert names(tmp_path) == ["checkpoint", "savepoint"]


@pytest.mark.parametrize("place", ["elsewhere", "moved"])
def test_two_moves_at_once(
    checkpoint: Path,
    savepoint: Path,
    tmp_path: Path,
    while_copying: Callable[[Callable[[], object]], None],
    place: str,
) -> None:
    """Two operators move the query at the same time: it goes on in one place, under one identity.
    The slower one is told of it.
    """
    while_copying(lambda: restore(savepoint, str(tmp_path / place), Identity.SAME))
    with raised(CheckpointRefused, "SAVEPOINT_ORIGINAL", tmp_path / place):
        restore(savepoint, str(tmp_path / "moved"), Identity.SAME)
    assert names(tmp_path) == sorted({"checkpoint", "savepoint", place})
    assert is_usable(tmp_path / place) and not is_usable(checkpoint)
    decide(tmp_path / place, 2)
    assert restore(savepoint, str(tmp_path / place), Identity.SAME).already


def test_two_forks_at_once(
    savepoint: Path,
    tmp_path: Path,
    while_copying: Callable[[Callable[[], object]], None],
) -> None:
    """Of two that are to lie in one place there is one."""
    first: list[Restored] = []
    while_copying(lambda: first.append(restore(savepoint, str(tmp_path / "fork"))))
    with raised(CheckpointRefused, "SAVEPOINT_PLACE", tmp_path / "fork"):
        restore(savepoint, str(tmp_path / "fork"))
    assert restore(savepoint, str(tmp_path / "fork")).query_id == first[0].query_id
    assert names(tmp_path) == ["checkpoint", "fork", "savepoint"]


def test_two_savepoints_at_one_place(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second command began while the place was empty, and the first one has ended meanwhile: its
    savepoint stays as it is.
    """
    place = tmp_path / "savepoint"
    cut_at = create_module.cut.cut_at

    def slowly(files: Storage, batch_id: int) -> Any:
        monkeypatch.setattr(create_module.cut, "cut_at", cut_at)
        create(str(checkpoint), place)
        return cut_at(files, batch_id)

    monkeypatch.setattr(create_module.cut, "cut_at", slowly)
    with raised(CheckpointRefused, "SAVEPOINT_PLACE", place):
        create(str(checkpoint), place)
    assert names(place) == ["checkpoint", "manifest.json"]
    verify(Folder(place))


def test_an_original_that_is_out_of_sight(
    checkpoint: Path, savepoint: Path, tmp_path: Path
) -> None:
    """The same identity needs the original to be retired, or the word of somebody who knows that
    it is lost.
    """
    shutil.rmtree(checkpoint)
    with raised(CheckpointRefused, "SAVEPOINT_ORIGINAL", checkpoint):
        restore(savepoint, str(tmp_path / "moved"), Identity.SAME)
    restored = restore(savepoint, str(tmp_path / "moved"), Identity.SAME, original_is_gone=True)
    assert restored.query_id == QUERY


def test_restoring_twice(checkpoint: Path, savepoint: Path, tmp_path: Path) -> None:
    """The same call again finds that it is done, and keeps the identity that was given; another
    one is refused.
    """
    first = restore(savepoint, str(tmp_path / "fork"))
    again = restore(savepoint, str(tmp_path / "fork"))
    assert not first.already and again.already
    assert first.query_id == again.query_id != QUERY
    with raised(CheckpointRefused, "SAVEPOINT_PLACE", tmp_path / "fork", "fork", "same"):
        restore(savepoint, str(tmp_path / "fork"), Identity.SAME)
    create(str(checkpoint), tmp_path / "other")
    with raised(CheckpointRefused, "SAVEPOINT_PLACE", tmp_path / "fork", "another --checkpoint"):
        restore(tmp_path / "other", str(tmp_path / "fork"))


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_moved_query_never_goes_back(
    checkpoint: Path, savepoint: Path, tmp_path: Path, is_lost: bool
) -> None:
    """A supervisor repeats the call at each start. Under the same identity nobody goes back behind
    what the query has written in its new place, be that checkpoint there or gone.
    """
    moved = tmp_path / "moved"
    restore(savepoint, str(moved), Identity.SAME)
    complete(moved, 2)
    decide(moved, 2)
    if is_lost:
        shutil.rmtree(moved)
        with raised(CheckpointRefused, "SAVEPOINT_ORIGINAL", moved):
            restore(savepoint, str(moved), Identity.SAME)
        restored = restore(savepoint, str(moved), Identity.SAME, original_is_gone=True)
        assert restored.query_id == QUERY
        return
    for is_gone in (False, True):
        assert restore(savepoint, str(moved), Identity.SAME, original_is_gone=is_gone).already
        with raised(CheckpointRefused, "SAVEPOINT_ORIGINAL", moved):
            restore(savepoint, str(tmp_path / "second"), Identity.SAME)
    decide(moved, 3)


def test_a_query_moves_there_and_back(checkpoint: Path, savepoint: Path, tmp_path: Path) -> None:
    """To the place that it has left, once that is removed."""
    moved = tmp_path / "moved"
    restore(savepoint, str(moved), Identity.SAME)
    complete(moved, 2)
    decide(moved, 2)
    create(str(moved), tmp_path / "later")
    with raised(CheckpointRefused, "SAVEPOINT_PLACE", checkpoint):
        restore(tmp_path / "later", str(checkpoint), Identity.SAME)
    assert is_usable(moved)
    shutil.rmtree(checkpoint)
    back = restore(tmp_path / "later", str(checkpoint), Identity.SAME)
    assert (back.query_id, back.batch_id) == (QUERY, 2)
    assert is_usable(checkpoint) and not is_usable(moved)


@pytest.mark.parametrize("place", ["checkpoint", "new", "link"])
def test_a_savepoint_is_no_place_for_a_checkpoint(
    savepoint: Path, tmp_path: Path, place: str
) -> None:
    """A query would write into it."""
    folder = savepoint / place
    if place == "link":
        folder = tmp_path / "link"
        folder.symlink_to(savepoint / "checkpoint")
    with raised(CheckpointRefused, "SAVEPOINT_PLACE", folder, savepoint):
        restore(savepoint, str(folder))
    verify(Folder(savepoint))


@pytest.mark.parametrize("since", ["nothing", "a plan", "a run", "a run while it is copied"])
def test_an_original_that_may_have_decided_more_elsewhere(
    checkpoint: Path, tmp_path: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    """If an epoch after the savepoint's is decided in a log that is not seen from here, the moved
    query would plan another one of its number. One that the stopped query had planned by then, and
    never begun, does not matter.
    """

    def run(incarnation: str) -> None:
        process = driver(incarnation)
        process.kill()
        process.wait()

    def stop_as_a_driver_answers(files: Storage, timeout_s: float) -> Stopped:
        run("0" * 16)
        if since == "a run while it is copied":
            run("1" * 16)
        return Stopped(1, ("0" * 16,))

    note(checkpoint, QUERY, decision_log=ELSEWHERE)
    monkeypatch.setattr(create_module, "stop", stop_as_a_driver_answers)
    if since == "a plan":
        create(str(checkpoint), tmp_path / "savepoint")  # nobody has said that it is at rest
        plan(checkpoint, 2)
    else:
        plan(checkpoint, 2)
        create(str(checkpoint), tmp_path / "savepoint", stop_query=True)
    if since == "a run":
        run("1" * 16)
    to = (str(tmp_path / "moved"), Identity.SAME)
    if since == "nothing":
        assert restore(tmp_path / "savepoint", *to).batch_id == 1
        return
    with raised(CheckpointRefused, "SAVEPOINT_BEHIND", checkpoint, "epoch 2"):
        restore(tmp_path / "savepoint", *to)
    assert is_usable(checkpoint) and not (tmp_path / "moved").exists()
    complete(checkpoint, 2)
    create(str(checkpoint), tmp_path / "newer")
    assert restore(tmp_path / "newer", *to).batch_id == 2


CALLS_MAX = 300


def killed(tmp_path: Path, to: str) -> Iterator[tuple[Path, Callable[[], Restored]]]:
    """For each change of the file system in a move: what it has left when it was killed before that
    one, and the same call once more.
    """
    for at in every_call(CALLS_MAX):
        folder = tmp_path / str(at)
        folder.mkdir()
        checkpoint = make_checkpoint(folder / "checkpoint")
        create(str(checkpoint), folder / "savepoint")

        def call(folder: Path = folder) -> Restored:
            return restore(folder / "savepoint", str(folder / to), Identity.SAME)

        try:
            with killed_at(at, folder):
                call()
        except Crash:
            yield folder, call
        else:
            assert at > 20, "it was killed at each change"
            return
    pytest.fail("it takes more changes than that")


@pytest.mark.sweep
def test_a_create_that_is_killed_at_each_change(tmp_path: Path) -> None:
    """Half a savepoint is none; what is left can be deleted."""
    for at in every_call(CALLS_MAX):
        folder, place = tmp_path / str(at), tmp_path / str(at) / "savepoint"
        checkpoint = str(make_checkpoint(folder / "checkpoint"))
        try:
            with killed_at(at, folder):
                create(checkpoint, place)
        except Crash:
            if (place / "manifest.json").exists():
                verify(Folder(place))
            if place.exists() and names(place):
                with raised(CheckpointRefused, "SAVEPOINT_PLACE", "savepoint delete"):
                    create(checkpoint, place)
                delete(place)
            create(checkpoint, place)
        else:
            assert at > 20, "it was killed at each change"
            return


@pytest.mark.sweep
def test_a_move_that_is_killed_at_each_change(tmp_path: Path) -> None:
    """The query goes on in one place, never in two: in the old one as it was; or the old one says
    that the move was cut short, and the same call finishes it.
    """
    seen = set()
    for folder, call in killed(tmp_path, "moved"):
        old, new = folder / "checkpoint", folder / "moved"
        seen.add((is_usable(old), new.exists()))
        assert (is_usable(old), new.exists()) != (True, True)
        if not is_usable(old) and not new.exists():
            with raised(CheckpointRefused, "RESTORE_UNFINISHED", old, new):
                retirement.refuse_retired(Folder(old))
        assert call().query_id == QUERY
        assert is_usable(new) and not is_usable(old)
        decide(new, 2)
        with raised(CheckpointRefused, "LOG_PRUNED", "Batch 2"):
            decide(old, 2)
    assert {(True, False), (False, False)} <= seen


def test_a_disk_that_fails_at_the_last_step(
    checkpoint: Path, savepoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original goes on, and nothing is left."""

    def fail(*_: object) -> None:
        raise OSError("the disk fails")

    with monkeypatch.context() as patch:
        patch.setattr(restore_module, "move_into_place", fail)
        with raised(Unavailable, "the disk fails"):
            restore(savepoint, str(tmp_path / "moved"), Identity.SAME)
    assert names(tmp_path) == ["checkpoint", "savepoint"]
    assert is_usable(checkpoint)
    decide(checkpoint, 2)
