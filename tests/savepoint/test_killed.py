"""Commands that make savepoints or start from them, killed: by files, without Spark, in a folder and
in an object store.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from exactum.checkpoint import retirement
from exactum.checkpoint.query_place import place_of
from exactum.checkpoint.retirement import Retirement, retire
from exactum.checkpoint.savepoint import restore as restore_module
from exactum.checkpoint.savepoint.create import create, delete
from exactum.checkpoint.savepoint.manifest import verify
from exactum.checkpoint.savepoint.restore import Identity, restore
from exactum.errors import CheckpointRefused, ExactumError, Unavailable
from exactum.storage.storage import Storage
from exactum.testing.faults import Crash
from tests.kit.errors import check_error, raised
from tests.kit.every_call import every_call
from tests.kit.files.s3_server import S3Server
from tests.kit.nth_call import at_call
from tests.kit.savepoint.killed import killed_at
from tests.kit.savepoint.stateless import QUERY, decide, is_there, is_usable, make_checkpoint

pytestmark = pytest.mark.usefixtures("no_patience")

CALLS_MAX = 300


@contextlib.contextmanager
def dies_at(request: pytest.FixtureRequest, root: str, at: int) -> Iterator[None]:
    """The body dies before its change number ``at`` of a folder or a store."""
    if not root.startswith("s3a:"):
        with killed_at(at, Path(root)):
            yield
        return
    server: S3Server = request.getfixturevalue("server")
    server.changes, server.ends_at = 0, at
    try:
        yield
    finally:
        server.ends_at = server.refusal = None


@pytest.mark.sweep
def test_a_create_that_is_killed_at_each_change(root: str, request: pytest.FixtureRequest) -> None:
    """Half a savepoint is none; what is left can be deleted."""
    for at in every_call(CALLS_MAX):
        place = f"{root}/{at}/savepoint"
        checkpoint = make_checkpoint(place_of(f"{root}/{at}/checkpoint")).where
        try:
            with dies_at(request, root, at):
                create(checkpoint, place)
        except (Crash, ExactumError):
            if place_of(place).read("manifest.json") is not None:
                verify(place_of(place))
            if is_there(place):
                with raised(CheckpointRefused, "SAVEPOINT_PLACE", "savepoint delete"):
                    create(checkpoint, place)
                delete(place)
            create(checkpoint, place)
        else:
            assert at > 8, "it was killed at each change"
            return
    pytest.fail("it takes more changes than that")


@pytest.mark.sweep
@pytest.mark.parametrize("identity", Identity)
def test_a_restore_that_is_killed_at_each_change(
    root: str, request: pytest.FixtureRequest, identity: Identity
) -> None:
    """The query goes on in one place, never in two: in the old one as it was; or the old one says
    that the move was cut short, and the same call finishes it.
    """
    seen = set()
    for at in every_call(CALLS_MAX):
        old = make_checkpoint(place_of(f"{root}/{at}/checkpoint"))
        savepoint, new = f"{root}/{at}/savepoint", f"{root}/{at}/moved"
        create(old.where, savepoint)
        try:
            with dies_at(request, root, at):
                restore(savepoint, new, identity)
        except (Crash, ExactumError):
            seen.add((is_usable(old.where), is_usable(new)))
        else:
            assert at > 10, "it was killed at each change"
            break
        if identity is Identity.SAME:
            assert (is_usable(old.where), is_usable(new)) != (True, True)
            if not is_usable(old.where) and not is_usable(new):
                with raised(CheckpointRefused, "RESTORE_UNFINISHED", old.where, new):
                    retirement.refuse_retired(old)
        again = restore(savepoint, new, identity)
        assert (again.query_id == QUERY) is (identity is Identity.SAME)
        assert is_usable(new) and is_usable(old.where) is (identity is Identity.FORK)
        if identity is Identity.SAME:
            decide(place_of(new), 2)
            with raised(CheckpointRefused, "LOG_PRUNED", "Batch 2"):
                decide(old, 2)
    else:
        pytest.fail("it takes more changes than that")
    assert {(True, False)} | ({(False, False)} if identity is Identity.SAME else set()) <= seen


def test_a_move_that_is_killed_while_it_is_taken_back(
    root: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver whom nobody saw decides as the original is retired, so the move is taken back. What
    a killed command leaves of that, the same call finishes: the query goes on in the old place.
    """

    def too_late(files: Storage, retirement: Retirement) -> Retirement:
        decide(files, 2)
        stands = retire(files, retirement)
        dying.enter_context(dies_at(request, root, at))
        return stands

    monkeypatch.setattr(restore_module, "retire", too_late)
    seen = set()
    for at in range(1, CALLS_MAX):
        old = make_checkpoint(place_of(f"{root}/{at}/checkpoint"))
        savepoint, new, second = (f"{root}/{at}/{name}" for name in ("savepoint", "new", "second"))
        create(old.where, savepoint)
        with pytest.raises((Crash, ExactumError)) as ended, contextlib.ExitStack() as dying:
            restore(savepoint, new, Identity.SAME)
        assert not is_usable(new)
        if is_usable(old.where):
            assert {None, retirement.TAKEN_BACK} <= seen
            check_error(ended.value, CheckpointRefused, "SAVEPOINT_BEHIND", old.where)
            return
        seen.add(place_of(new).read("exactum/restoring/ended"))
        with raised(CheckpointRefused, "RESTORE_UNFINISHED", old.where, new):
            retirement.refuse_retired(old)
        with raised(CheckpointRefused, "RESTORE_UNFINISHED", old.where, new):
            restore(savepoint, second, Identity.SAME)
        with pytest.raises(CheckpointRefused):
            restore(savepoint, new, Identity.SAME)
        assert is_usable(old.where) and not is_usable(new) and not is_there(second)
        decide(old, 3)
    pytest.fail("it takes more changes than that")


@pytest.mark.parametrize("root", ["folder"], indirect=True)
def test_a_full_disk_takes_no_move_back(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At whichever file: the same call goes on with the same copy."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for at in range(1, CALLS_MAX):
        old = make_checkpoint(place_of(f"{root}/{at}/checkpoint"))
        savepoint, new = f"{root}/{at}/savepoint", f"{root}/{at}/new"
        create(old.where, savepoint)
        with monkeypatch.context() as patch:
            come = at_call(patch, os, ["link"], at, full)
            with contextlib.suppress(Unavailable):
                restore(savepoint, new, Identity.SAME)
        restore(savepoint, new, Identity.SAME)
        assert is_usable(new) and not is_usable(old.where)
        if not come():
            assert at > 4, "each file"
            return
