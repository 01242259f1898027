"""A checkpoint's decision log and a file sink on a network file system that answers wrongly, at
every call.

A request whose reply was lost is sent again, and the second answer is that of a step that was done
already (a link that EXISTS, a removal of what is NOT there); a handle turns STALE after the step or
before it; fsync reports what a write could not: I/O, no space, no quota.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exactum.errors import Disposition, ExactumError, OutcomeUnknown
from exactum.files.slot_log import LOG_ID, RACES_MAX, SlotLog, slot_name
from exactum.storage.folder import Folder
from exactum.testing.log_contract import QUERY_ID, record
from tests.kit.errors import raised
from tests.kit.every_call import every_call
from tests.kit.files.epochs_in_files import drive, expected, hidden, ids_in
from tests.kit.nth_call import at_call

pytestmark = pytest.mark.slow

STEPS = ("link", "rename", "unlink", "rmdir", "mkdir", "fsync")
REPEATED = {
    "link": errno.EEXIST,
    "rename": errno.ENOENT,
    "unlink": errno.ENOENT,
    "rmdir": errno.ENOENT,
    "mkdir": errno.EEXIST,
    "fsync": errno.EIO,
}
"""What a server that forgot its first answer says to the second request."""
FAULTS: dict[str, tuple[bool, int | None]] = {
    "sent twice": (True, None),
    "stale after": (True, errno.ESTALE),
    "stale before": (False, errno.ESTALE),
    "I/O before": (False, errno.EIO),
    "no space": (False, errno.ENOSPC),
    "no quota": (False, errno.EDQUOT),
}
"""Whether the step takes effect, and what is answered; None: as ``REPEATED``."""

ALIKE = ("stale before", "no quota")
"""As two others, but for the number."""


def answering(patched: pytest.MonkeyPatch, fault: str, at: int) -> Callable[[], str]:
    """Let the ``at``-th step from now on meet the fault; tells which step that was, "" for none
    yet.
    """
    struck = ""
    takes_effect, code = FAULTS[fault]

    def wrong(name: str, call: Callable[[], Any]) -> None:
        nonlocal struck
        answer, struck = REPEATED[name] if code is None else code, name
        if takes_effect:
            call()
        raise OSError(answer, os.strerror(answer))

    at_call(patched, os, STEPS, at, wrong)
    return lambda: struck


@pytest.mark.sweep
@pytest.mark.parametrize(
    "fault", [pytest.param(f, marks=pytest.mark.deep if f in ALIKE else ()) for f in FAULTS]
)
def test_a_wrong_answer_at_every_step_of_an_epoch(memory: Path, fault: str) -> None:
    """Whichever step is answered wrongly: the run goes on, or stops with an error that lets it be
    started again, and in the end every row stands once. Nothing staged is left.
    """
    refused = []
    for at in every_call(400):
        folder = memory / str(at)
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patched:
            struck = answering(patched, fault, at)
            try:
                drive(str(folder), range(2), None, ["day"])
            except ExactumError as error:
                refused.append((struck(), error))
        if not struck():
            break
        drive(str(folder), range(2), None, ["day"])
        assert ids_in(folder / "table") == expected(range(2)), struck()
        drive(str(folder), range(2, 3), None, ["day"])
        assert hidden(folder / "table") == [], struck()
        shutil.rmtree(folder)
    assert at > 30
    print(f"{at} steps, {len(refused)} stopped the run")
    for step, error in refused:
        assert error.disposition in (Disposition.RETRY, Disposition.ABORT), f"{step}: {error!r}"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_answer_at_every_step_of_a_decision(memory: Path, fault: str) -> None:
    """What ``decide`` returns stands for whoever reads later; what it refuses stands as it is,
    or not at all.
    """
    for at in range(1, 60):
        folder = memory / str(at)
        log = SlotLog(Folder(folder), QUERY_ID, prune_every=1)
        told, refused = None, None
        with pytest.MonkeyPatch.context() as patched:
            struck = answering(patched, fault, at)
            try:
                told = log.decide(record(0))
                log.decide(record(1))
                log.prune(1)
            except ExactumError as error:
                refused = error
        if not struck():
            break
        assert refused is None or refused.disposition is not Disposition.HALT, (
            f"{struck()}: {refused!r}"
        )
        later = SlotLog(Folder(folder), QUERY_ID)
        if told is not None and not list(folder.glob("floor-*")):
            assert told == record(0) == later.decide(record(0, 0, "later")), struck()
        assert later.decide(record(1, 0, "later")) in (record(1), record(1, 0, "later")), struck()
    assert at > 8


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_is_made_once_is_there_or_an_error_says_so(memory: Path, fault: str) -> None:
    """It is another one's only where somebody else has made it; what was made is there, whole."""
    folder = Folder(memory)
    for at in range(1, 10):
        name, made = f"{at}.json", None
        with pytest.MonkeyPatch.context() as patched:
            struck = answering(patched, fault, at)
            with contextlib.suppress(ExactumError):
                made = folder.create_if_absent(name, b"content")
        if not struck():
            break
        assert made is not False, struck()
        assert made is None or folder.read(name) == b"content", struck()
    assert folder.create_if_absent(name, b"other") is False


def test_a_listing_that_lags_behind_decides_nothing(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that still sees the folder as it was takes no slot that another one has, and finds
    what stands there: ``link`` is the server's, not the cache's.
    """
    slow = SlotLog(Folder(memory), QUERY_ID)
    before = os.listdir(memory)
    SlotLog(Folder(memory), QUERY_ID).decide(record(0, 0, "other"))
    monkeypatch.setattr(os, "listdir", lambda folder: before)
    assert slow.decide(record(0)) == record(0, 0, "other")


def test_a_name_that_is_taken_and_not_seen_is_unknown(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says that the slot is taken, and the client's cache that there is nothing:
    neither is believed.
    """
    SlotLog(Folder(memory), QUERY_ID).decide(record(0, 0, "other"))
    monkeypatch.setattr(Folder, "read", lambda folder, name: None)
    with raised(OutcomeUnknown, f"{memory}/{slot_name(0, 0)}", f" {RACES_MAX} times", "nocto"):
        SlotLog(Folder(memory), QUERY_ID).decide(record(0))
    names = sorted(name for name in os.listdir(memory) if not name.startswith("."))
    assert names == [f"{0:020d}-0.json", LOG_ID]
