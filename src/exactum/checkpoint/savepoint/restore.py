"""Starts from a savepoint: makes a checkpoint of it, under a new identity (a fork) or under the
same one (a move).

fork   a new query id: Spark's ``metadata`` gets it, and the decisions of the parent stay behind.
       Everything that sinks name after the query (transactional ids, ledger rows, staged files) is
       its own from then on.
same   the query itself goes on in another place. Only from its very last epoch: targets know which
       epochs of a query they have, so an epoch of the same name must never be written with other
       rows. The original is retired.

check -> copy beside the place -> retire what makes room -> check again -> rename

Killed before the retirement, the old checkpoint is what it was. Killed after it, the old one says
so, and the same call goes on with the same copy.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path

from exactum.checkpoint import offset_log
from exactum.checkpoint.layout import REPLAYS
from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.query_record import record_of
from exactum.checkpoint.records import listed
from exactum.checkpoint.retirement import Retirement, reinstate, retire, retired
from exactum.checkpoint.run_file import outliving, runs
from exactum.checkpoint.savepoint import cut
from exactum.checkpoint.savepoint.copies import move_into_place, writing
from exactum.checkpoint.savepoint.create import refuse_doubt
from exactum.checkpoint.savepoint.manifest import CONTENT, MANIFEST, Manifest, verify
from exactum.checkpoint.savepoint.rebuilt import build
from exactum.errors import CheckpointRefused

ENDING_S = 4.0
"""How long a query that has just ended may still be seen."""


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
    made = _made_before(folder, manifest, identity)
    if made is not None and not replace:
        return made
    occupied = folder.exists() and any(folder.iterdir())
    if occupied and not replace:
        raise _occupied(folder)
    former = [QueryPlace.of(folder).folder] if occupied else []
    original, begun = None, None
    if identity is Identity.SAME and not original_is_gone:
        original, begun = _original(manifest, folder)
        former += [original] if original != folder else []
    if begun is None:
        for each in former:
            _refuse_unless_at_rest(each, manifest, identity)
        fork_id = str(uuid.uuid4()) if identity is Identity.FORK else None
        with writing(folder):
            built = build(savepoint, manifest, folder, fork_id)
        begun = Retirement(str(folder), manifest.id, str(built))
    aside = _aside(folder) if occupied else None
    with writing(folder):
        try:
            for each in former:
                stands = retire(each, begun)
                if each == original and stands != begun:  # another command was faster
                    raise _left(each, stands)
                _refuse_unless_at_rest(each, manifest, identity)
            if aside is not None:
                move_into_place(folder, aside)
            move_into_place(Path(begun.built), folder)
        except Exception as error:
            _undo(begun, former)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise _occupied(folder) from error
            raise
    return Restored(folder, cut.query_id_of(folder), manifest.batch_id, moved_aside=aside)


def _occupied(folder: Path) -> CheckpointRefused:
    return CheckpointRefused(
        "SAVEPOINT_PLACE",
        f"There is a checkpoint in {folder} already, and it takes precedence over a savepoint: "
        "start the query without one. Or give another --checkpoint, or move it aside with "
        "--replace. Nothing was changed.",
    )


def _target(checkpoint: str) -> Path:
    folder = offset_log.local_folder(checkpoint)
    if folder is None:
        raise CheckpointRefused(
            "SAVEPOINT_PLACE",
            f"The checkpoint {checkpoint} does not lie on a local or shared file system; a "
            "savepoint can only be restored to one. Nothing was changed.",
        )
    folder = folder.absolute()
    if folder.exists() and not folder.is_dir():
        raise CheckpointRefused(
            "SAVEPOINT_PLACE", f"{folder} is not a folder. Nothing was changed."
        )
    for above in folder.resolve().parents:
        if (above / MANIFEST).is_file() and (above / CONTENT).is_dir():
            raise CheckpointRefused(
                "SAVEPOINT_PLACE",
                f"{folder} lies within the savepoint {above}, which is to stay as it is. Give "
                "another --checkpoint. Nothing was changed.",
            )
    return folder


def _made_before(folder: Path, manifest: Manifest, identity: Identity) -> Restored | None:
    """What an earlier call with the same savepoint made, or None.

    Raises:
        CheckpointRefused: it was made of this savepoint under the other identity.
    """
    if not (folder / "metadata").is_file():
        return None
    query_id = cut.query_id_of(folder)
    restored = record_of(folder, query_id).content.restored
    if restored is None or restored.savepoint != manifest.id:
        return None
    if restored.fork != (identity is Identity.FORK):
        made = Identity.FORK if restored.fork else Identity.SAME
        raise CheckpointRefused(
            "SAVEPOINT_PLACE",
            f"{folder} was made of this savepoint before, as {made.value}, not as "
            f"{identity.value}. Start the query from it as it is, or give another --checkpoint. "
            "Nothing was changed.",
        )
    return Restored(folder, query_id, manifest.batch_id, already=True)


def _is_of(checkpoint: Path, manifest: Manifest) -> bool:
    """Whether this is a checkpoint of the query that the savepoint is of."""
    return (checkpoint / "metadata").is_file() and cut.query_id_of(checkpoint) == manifest.query_id


def _original(manifest: Manifest, folder: Path) -> tuple[Path, Retirement | None]:
    """The checkpoint that a move retires; and what a command that was killed had begun of the same
    move.

    Raises:
        CheckpointRefused: it cannot be found, or the query has left it.
    """
    original = Path(manifest.checkpoint)
    if not _is_of(original, manifest):
        raise CheckpointRefused(
            "SAVEPOINT_ORIGINAL",
            f"The original checkpoint {original} (on {manifest.host}) is not to be found, so it "
            "cannot be retired. Run this where it can be seen, or start a fork (--as fork); or, if "
            "it is lost and no driver of it lives, say --original-is-gone. Nothing was changed.",
        )
    stands = retired(original)
    if stands is None:
        return original, None
    is_this = (stands.to, stands.savepoint) == (str(folder), manifest.id)
    if not is_this or _made_before(Path(stands.built), manifest, Identity.SAME) is None:
        raise _left(original, stands)
    return original, stands


def _left(checkpoint: Path, stands: Retirement) -> CheckpointRefused:
    return CheckpointRefused(
        "SAVEPOINT_ORIGINAL",
        f"The checkpoint {checkpoint} is retired: {stands.to} took its place. Start the query from "
        "there, or start a fork (--as fork); or, if that is gone and nobody has gone on there, say "
        "--original-is-gone. Nothing was changed.",
    )


def _refuse_unless_at_rest(checkpoint: Path, manifest: Manifest, identity: Identity) -> None:
    """
    Raises:
        CheckpointRefused: its query runs, or what it has may not be left: of another query an epoch
            in doubt; of the moved query itself anything after the savepoint's epoch.
    """
    alive = outliving(checkpoint, ENDING_S)
    if alive:
        raise CheckpointRefused(
            "QUERY_RUNS",
            f"The query of checkpoint {checkpoint} runs: {alive[0]}. Stop it first, for a move "
            "with a new savepoint (exactum savepoint create --stop). Nothing was changed.",
        )
    if identity is Identity.FORK or not _is_of(checkpoint, manifest):
        refuse_doubt(checkpoint, cut.last_complete(checkpoint))
        return
    known = manifest.incarnations
    is_as_it_stopped = known is not None and all(
        r.incarnation in known for r, _ in runs(checkpoint)
    )
    past = cut.past(checkpoint, manifest.batch_id, is_as_it_stopped)
    names = listed(checkpoint / REPLAYS, "what dead letters were replayed")
    replays = cut.replays_of(f"{REPLAYS}/{name}" for name in names)
    if not past and replays - cut.replays_of(file.path for file in manifest.files):
        past = "has replayed dead letters"
    if past:
        raise CheckpointRefused(
            "SAVEPOINT_BEHIND",
            f"The query of checkpoint {checkpoint} {past} since this savepoint of epoch "
            f"{manifest.batch_id} was made, and under its own identity it never goes back: make a "
            "new savepoint of it, or start a fork (--as fork). Nothing was changed.",
        )


def _aside(folder: Path) -> Path:
    now = datetime.now(timezone.utc)
    return folder.with_name(f"{folder.name}.replaced-{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}")


def _undo(begun: Retirement, former: list[Path]) -> None:
    """Leave nothing of it. What was built goes first: nobody else can finish the move then."""
    built = Path(begun.built)
    unwanted = built.with_name(f"{built.name}.unwanted")
    try:
        os.rename(built, unwanted)
    except FileNotFoundError:  # it has its place
        return
    for each in former:
        reinstate(each, begun)
    shutil.rmtree(unwanted)
