"""Starts from a savepoint: makes a checkpoint of it, under a new identity (a fork) or under the
same one (a move).

fork   a new query id: Spark's ``metadata`` gets it, and the decisions of the parent stay behind.
       Everything that sinks name after the query (transactional ids, ledger rows, staged files) is
       its own from then on.
same   the query itself goes on in another place. Only from its very last epoch: targets know which
       epochs of a query they have, so an epoch of the same name must never be written with other
       rows. The original is retired.
"""

from __future__ import annotations

import errno
import json
import secrets
import shutil
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path

from exactum.checkpoint import offset_log, retirement
from exactum.checkpoint.layout import RESTORED
from exactum.checkpoint.savepoint import cut, move
from exactum.checkpoint.savepoint.copies import move_into_place, writing
from exactum.checkpoint.savepoint.create import refuse_doubt
from exactum.checkpoint.savepoint.manifest import CONTENT, MANIFEST, Manifest, verify
from exactum.checkpoint.savepoint.rebuilt import build
from exactum.errors import CheckpointRefused


class Identity(Enum):
    """Who the query is that starts from a savepoint."""

    FORK = "fork"
    SAME = "same"


@dataclass(frozen=True)
class Restored:
    """``already`` is True where the checkpoint had been made of this savepoint before: nothing was
    done.

    ``moved_aside`` is where a checkpoint that was replaced lies now.
    """

    checkpoint: Path
    query_id: str
    batch_id: int
    already: bool = False
    moved_aside: Path | None = None


def restore(
    savepoint: Path,
    checkpoint: str,
    identity: Identity = Identity.FORK,
    *,
    replace: bool = False,
    original_is_gone: bool = False,
) -> Restored:
    """Make the folder ``checkpoint`` a checkpoint from which a query starts after the savepoint's
    epoch. Idempotent.

    The folder must be absent or empty, or made of this savepoint before: a query's own checkpoint
    takes precedence over a savepoint. ``replace`` moves one that is there aside instead.
    ``original_is_gone`` is for ``Identity.SAME``: the caller vouches that the original checkpoint
    is lost and that no driver of it lives.

    Raises:
        CheckpointRefused: the savepoint is damaged, or starting from it like this would be unsafe.
        Unavailable: the folder cannot be written.
    """
    savepoint = savepoint.absolute()
    manifest = verify(savepoint)
    folder = _target(checkpoint)
    before = _restored_before(folder, manifest, identity)
    if before is not None and not replace:
        if identity is Identity.SAME:
            move.note_moved(manifest, before.checkpoint)
        return before
    occupied = folder.exists() and any(folder.iterdir())
    if occupied and not replace:
        raise _occupied(folder)
    if occupied:
        _refuse_unless_at_rest(folder)
        if identity is Identity.SAME and move.is_of(folder, manifest):
            move.refuse_rollback(folder, manifest)
    original = None
    if identity is Identity.SAME and not original_is_gone:
        original = move.original_at_rest(manifest, folder)
    fork_id = str(uuid.uuid4()) if identity is Identity.FORK else None
    with writing(folder):
        built = build(savepoint, manifest, folder, fork_id)
    try:
        with writing(folder):
            if original is not None and original != folder:
                move.retire(original, manifest, folder)
            aside = _move_aside(folder, manifest, identity) if occupied else None
            faster = _moved_in(built, folder, manifest, identity)
    finally:
        shutil.rmtree(built, ignore_errors=True)  # it has another name by now, or is not wanted
    if identity is Identity.SAME:
        move.note_moved(manifest, folder)
    if faster is not None:
        return faster
    return Restored(folder, fork_id or manifest.query_id, manifest.batch_id, moved_aside=aside)


def _occupied(folder: Path) -> CheckpointRefused:
    return CheckpointRefused(
        f"There is a checkpoint in {folder} already, and it takes precedence over a savepoint: "
        "start the query without one. Or give another --checkpoint, or move it aside with "
        "--replace. Nothing was changed."
    )


def _target(checkpoint: str) -> Path:
    folder = offset_log.local_folder(checkpoint)
    if folder is None:
        raise CheckpointRefused(
            f"The checkpoint {checkpoint} does not lie on a local or shared file system; a "
            "savepoint can only be restored to one. Nothing was changed."
        )
    folder = folder.absolute()
    if folder.exists() and not folder.is_dir():
        raise CheckpointRefused(f"{folder} is not a folder. Nothing was changed.")
    for above in folder.resolve().parents:
        if (above / MANIFEST).is_file() and (above / CONTENT).is_dir():
            raise CheckpointRefused(
                f"{folder} lies within the savepoint {above}, which is to stay as it is. Give "
                "another --checkpoint. Nothing was changed."
            )
    return folder


def _restored_before(folder: Path, manifest: Manifest, identity: Identity) -> Restored | None:
    """What an earlier call with the same savepoint made, or None.

    Raises:
        CheckpointRefused: it was made of this savepoint under the other identity.
    """
    try:
        value = json.loads((folder / RESTORED).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    if value.get("savepoint") != manifest.id:
        return None
    if value.get("as") != identity.value:
        raise CheckpointRefused(
            f"{folder} was made of this savepoint before, as {value.get('as')}, not as "
            f"{identity.value}. Start the query from it as it is, or give another --checkpoint. "
            "Nothing was changed."
        )
    return Restored(folder, cut.query_id_of(folder), manifest.batch_id, already=True)


def _refuse_unless_at_rest(folder: Path) -> None:
    """
    Raises:
        CheckpointRefused: what is in ``folder`` is no checkpoint, is used, or has an epoch in
            doubt.
    """
    cut.local_checkpoint(str(folder))
    alive = move.still_living(folder)
    if alive:
        raise CheckpointRefused(
            f"The query of checkpoint {folder} runs: {alive[0]}. Stop it before its checkpoint is "
            "replaced. Nothing was changed."
        )
    refuse_doubt(folder, cut.last_complete(folder), None)


def _moved_in(built: Path, folder: Path, manifest: Manifest, identity: Identity) -> Restored | None:
    """Give what was built its name. Returns what another call with the same savepoint has made
    there meanwhile; None: there was none.

    Raises:
        CheckpointRefused: something else has the name by now.
        OSError: the file system failed.
    """
    try:
        move_into_place(built, folder)
        return None
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        faster = _restored_before(folder, manifest, identity)
        if faster is None:
            raise _occupied(folder) from error
        return faster


def _move_aside(folder: Path, manifest: Manifest, identity: Identity) -> Path:
    """Retire what is in ``folder`` and give it another name, which is returned.

    Raises:
        CheckpointRefused: it is the query's own, and as ``move.refuse_late``.
    """
    aside = folder.with_name(
        f"{folder.name}.replaced-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    )
    retirement.retire(folder, {"to": str(folder), "savepoint": manifest.id})
    if identity is Identity.SAME and move.is_of(folder, manifest):
        move.refuse_late(folder, manifest)
    move_into_place(folder, aside)
    return aside
