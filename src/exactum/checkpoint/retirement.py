"""A checkpoint whose place another one takes: nobody may start from it any more.

    <checkpoint>/exactum/retired.json                      for people, and for a start
    <checkpoint>/exactum/decisions/floor-999...            for a driver that was only asleep
    <checkpoint>/exactum/replays/floor-999...              for a replay of dead letters

The floors are the decision log's own floor above every batch: whoever decides anything under it is
fenced, at whatever step it stood when the checkpoint was retired (the proof is in
``files.slot_log``).

A checkpoint that is made of a savepoint is none before ``<checkpoint>/exactum/restoring/ended``
says so:

    <checkpoint>/exactum/restoring/begun                   first: nobody starts from it
    <checkpoint>/exactum/restoring/ended                   last, once: finished, or taken back
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass

from exactum.checkpoint.layout import DECISIONS, REPLAYS, RESTORING, RETIRED
from exactum.errors import CheckpointRefused, SettingRefused, Unavailable
from exactum.files.slot_log import HIGHEST_FLOOR
from exactum.storage.at import storage_at
from exactum.storage.storage import Storage

BEGUN = "begun"
ENDED = "ended"
FINISHED, TAKEN_BACK = b"finished", b"taken back"
"""What ``ended`` says."""


@dataclass(frozen=True)
class Retirement:
    """``to`` is the checkpoint that takes the place, made of the savepoint with this id."""

    to: str
    savepoint: str

    @property
    def is_unfinished(self) -> bool:
        """Whether the last step was not reached, or takes the move back, which then is to be undone
        here. A command that was killed leaves it so. False where ``to`` is out of sight.
        """
        with contextlib.suppress(SettingRefused, Unavailable):
            place = storage_at(self.to)
            begun, ended = (place.read(f"{RESTORING}/{name}") for name in (BEGUN, ENDED))
            is_this = begun is not None and json.loads(begun)["savepoint"] == self.savepoint
            return is_this and ended != FINISHED
        return False


def retire(files: Storage, retirement: Retirement) -> Retirement:
    """Let nobody start from this checkpoint and nobody decide under it. Durable when it returns;
    idempotent. Returns the retirement that stands: of two at once the first one.
    """
    content = (json.dumps(asdict(retirement), indent=2) + "\n").encode()
    has_decisions = bool(files.names(DECISIONS))
    folders = [DECISIONS, REPLAYS] if has_decisions else [REPLAYS]
    files.open(*folders)
    files.create_if_absent(RETIRED, content)
    for folder in folders:
        files.create_if_absent(f"{folder}/{HIGHEST_FLOOR}", b"")
    return retired(files) or retirement


def reinstate(files: Storage, retirement: Retirement) -> None:
    """Undo this retirement, if it is the one that stands. Idempotent."""
    if retired(files) != retirement:
        return
    for folder in (REPLAYS, DECISIONS):
        files.delete([f"{folder}/{HIGHEST_FLOOR}"])
        if files.names(folder):
            files.sync(folder)
    files.delete([RETIRED])
    files.sync(RETIRED.rpartition("/")[0])


def retired(files: Storage) -> Retirement | None:
    """By what this checkpoint is retired; None: by nothing."""
    text = files.read(RETIRED)
    if text is None:
        return None
    try:
        return Retirement(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise CheckpointRefused(
            "CHECKPOINT_RETIRED",
            f"{files.where}/{RETIRED} cannot be read ({error}): another checkpoint took this one's "
            "place, and nobody can tell which. Nothing was changed.",
        ) from error


def refuse_retired(files: Storage) -> None:
    """
    Raises:
        CheckpointRefused: the checkpoint is retired, or is not finished.
        Unavailable, SettingRefused: as the storage.
    """
    refuse_unfinished(files)
    found = retired(files)
    if found is None:
        return
    if found.is_unfinished:
        raise CheckpointRefused(
            "RESTORE_UNFINISHED",
            f"The checkpoint {files.where} makes room for {found.to}, and the command that does it "
            "was killed. Repeat that 'exactum savepoint restore', then go on from there. Nothing "
            "was written.",
        )
    raise CheckpointRefused(
        "CHECKPOINT_RETIRED",
        f"The checkpoint {files.where} is retired: {found.to} took its place, from savepoint "
        f"{found.savepoint}. Go on from there; if that is lost for good, start a fork of a "
        "savepoint. Nothing was written.",
    )


def refuse_unfinished(files: Storage) -> None:
    """
    Raises:
        CheckpointRefused: it is being made of a savepoint, or was to be.
    """
    if not files.names(RESTORING):
        return
    ended = files.read(f"{RESTORING}/{ENDED}")
    if ended is None:
        raise CheckpointRefused(
            "RESTORE_UNFINISHED",
            f"The checkpoint {files.where} is being made of a savepoint, or the command that does "
            "it was killed. Repeat that 'exactum savepoint restore', then go on from there. "
            "Nothing was written.",
        )
    if ended != FINISHED:
        raise CheckpointRefused(
            "RESTORE_UNFINISHED",
            f"The checkpoint {files.where} was to be made of a savepoint, and that was taken back. "
            "Start the query where it was, and then remove what is here. Nothing was written.",
        )
