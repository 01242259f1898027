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

import contextlib
import errno
import json
import re
import secrets
import shutil
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path

from exactum.checkpoint import offset_log, retirement
from exactum.checkpoint.layout import DECISIONS, OF_PARENT, REPLAYS, RESTORED
from exactum.checkpoint.run_file import outliving
from exactum.checkpoint.savepoint import cut
from exactum.checkpoint.savepoint.copies import copy_files, move_into_place, writing
from exactum.checkpoint.savepoint.create import refuse_doubt
from exactum.checkpoint.savepoint.manifest import CONTENT, MANIFEST, Manifest, verify
from exactum.durable import make_folder, stays_below, sync_folder, write_durably
from exactum.errors import CheckpointRefused

ENDING_S = 4.0
"""How long a query that has just ended may still be seen."""
_SCHEMA_FILE = re.compile(r".*/(state/\d+/_stateSchema/.+)")


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
        _note_moved(manifest, before.checkpoint, identity)
        return before
    occupied = folder.exists() and any(folder.iterdir())
    if occupied and not replace:
        raise _occupied(folder)
    if occupied:
        _refuse_unless_at_rest(folder)
        if identity is Identity.SAME and _is_of(folder, manifest):
            _refuse_rollback(folder, manifest)
    original = None
    if identity is Identity.SAME and not original_is_gone:
        original = _original_at_rest(manifest, folder)
    query_id = manifest.query_id if identity is Identity.SAME else str(uuid.uuid4())
    with writing(folder):
        built = _build(savepoint, manifest, folder, identity, query_id)
    try:
        with writing(folder):
            if original is not None and original != folder:
                _retire(original, manifest, folder)
            aside = _move_aside(folder, manifest) if occupied else None
            faster = _moved_in(built, folder, manifest, identity)
    finally:
        shutil.rmtree(built, ignore_errors=True)  # it has another name by now, or is not wanted
    _note_moved(manifest, folder, identity)
    if faster is not None:
        return faster
    return Restored(folder, query_id, manifest.batch_id, moved_aside=aside)


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
    alive = outliving(folder, ENDING_S)
    if alive:
        raise CheckpointRefused(
            f"The query of checkpoint {folder} runs: {alive[0]}. Stop it before its checkpoint is "
            "replaced. Nothing was changed."
        )
    refuse_doubt(folder, cut.last_complete(folder), None)


def _original_at_rest(manifest: Manifest, folder: Path) -> Path:
    """The original checkpoint, which nobody uses and which has no epoch after the savepoint's.

    Raises:
        CheckpointRefused: it runs, has gone on since, is retired already, or cannot be found.
    """
    original = Path(manifest.checkpoint)
    if not (original / "metadata").is_file() or cut.query_id_of(original) != manifest.query_id:
        raise CheckpointRefused(
            f"The original checkpoint {original} (on {manifest.host}) of query {manifest.query_id} "
            "is not to be found, so it cannot be retired: two queries of one identity would spoil "
            "each other's epochs. Run this where it can be seen; or, if it is lost for good and "
            "no driver of it lives, say --original-is-gone; or start a fork (--as fork). Nothing "
            "was changed."
        )
    alive = outliving(original, ENDING_S)
    if alive:
        raise CheckpointRefused(
            f"The original query runs: {alive[0]}, checkpoint {original}. Stop it with a new "
            "savepoint (exactum savepoint create --stop), or start a fork (--as fork). Nothing "
            "was changed."
        )
    _refuse_other_place(original, manifest, folder)
    _refuse_rollback(original, manifest)
    if retirement.is_moved(original) and not _is_of(folder, manifest):
        raise CheckpointRefused(
            f"The query was moved to {folder} before, from this savepoint, and may have gone on "
            "there; now that checkpoint is gone. Under the same identity nobody goes back behind "
            "what it has written since. Put the checkpoint back, or start a fork (--as fork); or, "
            "if it has never run there, say --original-is-gone. Nothing was changed."
        )
    return original


def _is_of(folder: Path, manifest: Manifest) -> bool:
    """Whether this is a checkpoint of the query that the savepoint is of."""
    return (folder / "metadata").is_file() and cut.query_id_of(folder) == manifest.query_id


def _note_moved(manifest: Manifest, folder: Path, identity: Identity) -> None:
    """For the next call, in the original checkpoint, where that can be seen. What cannot be written
    there now is no reason to keep the query from its new place: the next call tries again.
    """
    original = Path(manifest.checkpoint)
    if identity is Identity.SAME and original != folder and _is_of(original, manifest):
        with contextlib.suppress(OSError):
            retirement.note_moved(original)


def _refuse_other_place(original: Path, manifest: Manifest, folder: Path) -> None:
    """
    Raises:
        CheckpointRefused: the original has made room for another checkpoint than ``folder``.
    """
    retired = retirement.retired(original)
    if retired is not None and (retired.get("savepoint"), retired.get("to")) != (
        manifest.id,
        str(folder),
    ):
        raise CheckpointRefused(
            f"The original checkpoint {original} is retired: {retired.get('to')} took its place. "
            "Start the query from there, or start a fork (--as fork). Nothing was changed."
        )


def _retire(original: Path, manifest: Manifest, folder: Path) -> None:
    """See to it that nobody goes on under this identity in the original place. Idempotent.

    Raises:
        CheckpointRefused: another move was faster; or a driver that was asleep has decided until
            just now, and the original is not retired.
    """
    retirement.retire(original, {"to": str(folder), "savepoint": manifest.id})
    _refuse_other_place(original, manifest, folder)  # of two at once, the first one's name stands
    try:
        _refuse_rollback(original, manifest)  # from here on nobody can decide there any more
    except CheckpointRefused:
        retirement.reinstate(original)
        raise


def _refuse_rollback(original: Path, manifest: Manifest) -> None:
    """
    Raises:
        CheckpointRefused: the original has completed or decided an epoch after the savepoint's, or
            sent dead letters again.
    """
    last = max(cut.last_complete(original), cut.last_decided(original))
    if last > manifest.batch_id:
        raise CheckpointRefused(
            f"The query has gone on to epoch {last} since this savepoint of epoch "
            f"{manifest.batch_id} was made. Its targets have those epochs, so under the same "
            "identity epochs of the same names would be refused there, or lost. To go back, start "
            "a fork (--as fork); to move the query, make a new savepoint of its last epoch. "
            "Nothing was changed."
        )
    there = cut.replays_of(f"{REPLAYS}/{p.name}" for p in (original / REPLAYS).glob("*"))
    if there - cut.replays_of(file.path for file in manifest.files):
        raise CheckpointRefused(
            "Dead letters of the query were replayed since this savepoint was made. It does not "
            "know which, and the next replay would send them again: make a new savepoint, or start "
            "a fork (--as fork). Nothing was changed."
        )


def _build(
    savepoint: Path, manifest: Manifest, folder: Path, identity: Identity, query_id: str
) -> Path:
    """The new checkpoint, beside its place."""
    make_folder(folder.parent)
    built = folder.with_name(f".{folder.name}.restoring-{secrets.token_hex(4)}")
    built.mkdir()
    try:
        fork = identity is Identity.FORK
        decisions = DECISIONS.as_posix() + "/"
        left_out = [
            f.path
            for f in manifest.files
            if fork and (f.path == "metadata" or f.path.startswith(decisions))
        ]
        wanted = [f for f in manifest.files if f.path not in left_out]
        copied = copy_files(savepoint / CONTENT, built, [f.path for f in wanted])
        if list(copied) != wanted:
            raise CheckpointRefused(
                f"The savepoint {savepoint} changed while it was copied. Nothing was changed."
            )
        _point_to_schemas(built, folder)
        if fork:
            write_durably(built / "metadata", json.dumps({"id": query_id}).encode())
            _hand_down_replays(built, manifest.query_id)
        value = {
            "savepoint": manifest.id,
            "path": str(savepoint),
            "as": identity.value,
            "batch_id": manifest.batch_id,
            "parent_query_id": manifest.query_id,
            "restored_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        make_folder(built / RESTORED.parent)
        write_durably(built / RESTORED, (json.dumps(value, indent=2) + "\n").encode())
        sync_folder(built / RESTORED.parent)
        sync_folder(built)
    except BaseException:
        shutil.rmtree(built, ignore_errors=True)
        raise
    return built


def _hand_down_replays(built: Path, parent: str) -> None:
    """What the parent has sent again of its dead letters is not the fork's to send: it knows that
    of the records, which stay the parent's.
    """
    records = [p for p in (built / REPLAYS).glob("*") if p.is_file()]
    if not records:
        return
    place = built / REPLAYS / f"{OF_PARENT}{parent}"
    place.mkdir()
    for record in records:
        record.rename(place / record.name)
    sync_folder(place)
    sync_folder(place.parent)


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


def _point_to_schemas(built: Path, folder: Path) -> None:
    """Spark names state schemas by absolute paths: let them lead into the new place, not into the
    original one.

    Raises:
        CheckpointRefused: a schema that is named is not in the savepoint.
    """
    for path in sorted(built.glob("state/*/_metadata/v2/*")):
        head, _, body = path.read_text().partition("\n")
        value = json.loads(body)
        for store in value.get("stateStoreInfo", ()):
            names = [_SCHEMA_FILE.fullmatch(name) for name in store.get("stateSchemaFilePaths", ())]
            if any(
                name is None or not stays_below(name[1]) or not (built / name[1]).is_file()
                for name in names
            ):
                raise CheckpointRefused(
                    f"The savepoint lacks a state schema that {path.relative_to(built)} names: "
                    f"{store}. Its checkpoint was copied by hand from another place: make it from "
                    "the original. Nothing was changed."
                )
            store["stateSchemaFilePaths"] = [
                f"file:{folder}/{name[1]}" for name in names if name is not None
            ]
        path.unlink()
        write_durably(path, f"{head}\n{json.dumps(value, separators=(',', ':'))}".encode())
        sync_folder(path.parent)


def _move_aside(folder: Path, manifest: Manifest) -> Path:
    """Retire what is in ``folder`` and give it another name, which is returned."""
    aside = folder.with_name(
        f"{folder.name}.replaced-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    )
    retirement.retire(folder, {"to": str(folder), "savepoint": manifest.id})
    move_into_place(folder, aside)
    return aside
