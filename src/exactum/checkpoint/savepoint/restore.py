"""Starts from a savepoint: makes a checkpoint of it, under a new identity (a fork) or under the
same one (a move).

fork   a new query id: Spark's ``metadata`` gets it, and the decisions of the parent stay behind.
       Everything that sinks name after the query (transactional ids, ledger rows, staged files) is
       its own from then on.
same   the query itself goes on in another place. Only from its very last epoch: targets know which
       epochs of a query they have, so an epoch of the same name must never be written with other
       rows. The original is retired.

check -> copy -> check -> retire the original -> check -> the last step

The copy lies in its place, and nobody starts from it before the last step, one file that is created
once (``retirement.ENDED``): it says whether the copy is finished or taken back.

Killed before the retirement, the old checkpoint is what it was. Killed after it, the old one says
so, and the same call goes on with the same copy.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from msgspec.structs import replace as changed

from exactum.checkpoint.layout import DECISIONS, OF_PARENT, OWN, QUERY, REPLAYS, RESTORING
from exactum.checkpoint.query_place import METADATA, place_of, query_id_of
from exactum.checkpoint.query_record import Restoration, listed, record_of
from exactum.checkpoint.retirement import (
    BEGUN,
    ENDED,
    FINISHED,
    TAKEN_BACK,
    Retirement,
    refuse_retired,
    refuse_unfinished,
    reinstate,
    retire,
    retired,
)
from exactum.checkpoint.run_file import outliving, runs
from exactum.checkpoint.savepoint import cut
from exactum.checkpoint.savepoint.manifest import (
    CONTENT,
    MANIFEST,
    Manifest,
    copy_files,
    verify,
    writing,
)
from exactum.checkpoint.state_store import Vanished
from exactum.durable import stays_below
from exactum.errors import CheckpointRefused, Refused
from exactum.storage.folder import Folder
from exactum.storage.storage import Storage

ENDING_S = 4.0
"""How long a query that has just ended may still be seen."""
_METADATA_FILE = re.compile(r"state/[^/]+/_metadata/v2/[^/]+")
_SCHEMA_FILE = re.compile(r".*/(state/\d+/_stateSchema/.+)")


class Identity(Enum):
    """Who the query is that starts from a savepoint."""

    FORK = "fork"
    SAME = "same"


@dataclass(frozen=True)
class Restored:
    """``already`` is True where the checkpoint had been made of this savepoint before: nothing was
    done.
    """

    checkpoint: str
    query_id: str
    batch_id: int
    already: bool = False


def restore(
    savepoint: str | Path,
    checkpoint: str,
    identity: Identity = Identity.FORK,
    *,
    original_is_gone: bool = False,
) -> Restored:
    """Make ``checkpoint``, a folder or a prefix in an object store, a checkpoint from which a query
    starts after the savepoint's epoch. Idempotent.

    It must be absent or empty, or made of this savepoint before: a query's own checkpoint takes
    precedence over a savepoint. ``original_is_gone`` is for ``Identity.SAME``: the caller vouches
    that the original checkpoint is lost and that no driver of it lives.

    Raises:
        CheckpointRefused: the savepoint is damaged, or starting from it like this would be unsafe.
        Unavailable: the place cannot be written.
    """
    source = place_of(savepoint)
    manifest = verify(source)
    place = _target(checkpoint)
    if made := _made_before(place, manifest, identity):
        return made
    if _is_occupied(place, manifest):
        raise _occupied(place)
    original, begun = None, None
    if identity is Identity.SAME and not original_is_gone:
        original, begun = _original(manifest, place)
    with writing(place.where):
        if begun is None:
            begun = Retirement(place.where, manifest.id)
            if original is not None:
                _refuse_unless_at_rest(original, manifest)
            fork_id = str(uuid.uuid4()) if identity is Identity.FORK else None
            _build(source, manifest, place, fork_id)
        _end(manifest, place, original, begun)
    return Restored(place.where, query_id_of(place) or "", manifest.batch_id)


def _end(manifest: Manifest, place: Storage, original: Storage | None, begun: Retirement) -> None:
    """The copy is made: retire the original, if there is one, and take the last step.

    Raises:
        CheckpointRefused: the original has gone on, or another command was faster.
        OSError, Unavailable, SettingRefused: a storage failed.
    """
    ended = f"{RESTORING}/{ENDED}"
    try:
        if original is not None:
            # Who was started meanwhile is not to be fenced by a move that is then refused.
            _refuse_unless_at_rest(original, manifest)
            recorded = retire(original, begun)
            if recorded != begun:  # another command was faster
                raise _left(original, recorded)
            _refuse_unless_at_rest(original, manifest)
        if not place.create_if_absent(ended, FINISHED):
            refuse_unfinished(place)
    except Refused:  # after any other error the same call goes on
        # Once this stands nobody else can finish the move. The copy stays: another command may be
        # at it.
        if original is not None and place.create_if_absent(ended, TAKEN_BACK):
            reinstate(original, begun)
        raise


def _occupied(place: Storage) -> CheckpointRefused:
    return CheckpointRefused(
        "SAVEPOINT_PLACE",
        f"There is a checkpoint in {place.where} already, and it takes precedence over a "
        "savepoint: start the query without one. Or give another --checkpoint. Nothing was "
        "changed.",
    )


def _is_occupied(place: Storage, manifest: Manifest) -> bool:
    """Whether something is there that no command for this savepoint has left."""
    claim = _claim(place)
    if claim is not None:
        return claim.savepoint != manifest.id or bool(_ended(place))
    # Folders are made before the first file, and what dies over a file leaves a hidden one.
    names = place.names()
    if isinstance(place, Folder) and names == [OWN]:
        names = [each.name.rpartition("/")[2] for each in place.entries()]
    return not all(name.startswith(".") for name in names)


def _target(checkpoint: str) -> Storage:
    place = place_of(checkpoint)
    if not isinstance(place, Folder):
        return place
    folder = Path(place.root)
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
    return place


def _made_before(place: Storage, manifest: Manifest, identity: Identity) -> Restored | None:
    """What an earlier call with the same savepoint made, or None.

    Raises:
        CheckpointRefused: it was made of this savepoint under the other identity.
    """
    query_id = query_id_of(place)
    if query_id is None or (_claim(place) is not None and not _ended(place)):
        return None
    begun = Retirement(place.where, manifest.id)
    if begun.is_unfinished:  # taken back, and who did that may have died over it
        reinstate(place_of(manifest.checkpoint), begun)
    refuse_unfinished(place)
    restored = record_of(place, query_id).content.restored
    if restored is None or restored.savepoint != manifest.id:
        return None
    if restored.fork != (identity is Identity.FORK):
        made = Identity.FORK if restored.fork else Identity.SAME
        raise CheckpointRefused(
            "SAVEPOINT_PLACE",
            f"{place.where} was made of this savepoint before, as {made.value}, not as "
            f"{identity.value}. Start the query from it as it is, or give another --checkpoint. "
            "Nothing was changed.",
        )
    return Restored(place.where, query_id, manifest.batch_id, already=True)


def _original(manifest: Manifest, place: Storage) -> tuple[Storage, Retirement | None]:
    """The checkpoint that a move retires; and what a command that was killed had begun of the same
    move.

    Raises:
        CheckpointRefused: it cannot be found, or the query has left it.
    """
    original = place_of(manifest.checkpoint)
    if query_id_of(original) != manifest.query_id:
        raise CheckpointRefused(
            "SAVEPOINT_ORIGINAL",
            f"The original checkpoint {original.where} (on {manifest.host}) is not to be found, so "
            "it cannot be retired. Run this where it can be seen, or start a fork (--as fork); or, "
            "if it is lost and no driver of it lives, say --original-is-gone. Nothing was changed.",
        )
    recorded = retired(original)
    if recorded is None:
        return original, None
    if recorded.is_unfinished:
        if recorded == Retirement(place.where, manifest.id):
            return original, recorded
        refuse_retired(original)  # which says what is to be repeated
    raise _left(original, recorded)


def _left(files: Storage, recorded: Retirement) -> CheckpointRefused:
    return CheckpointRefused(
        "SAVEPOINT_ORIGINAL",
        f"The checkpoint {files.where} is retired: {recorded.to} took its place. Start the query "
        "from there, or start a fork (--as fork); or, if that is gone and nobody has gone "
        "on there, say --original-is-gone. Nothing was changed.",
    )


def _refuse_unless_at_rest(files: Storage, manifest: Manifest) -> None:
    """
    Raises:
        CheckpointRefused: its query runs, or may have done anything after the savepoint's epoch.
    """
    alive = outliving(files, ENDING_S)
    if alive:
        raise CheckpointRefused(
            "QUERY_RUNS",
            f"The query of checkpoint {files.where} runs: {alive[0]}. Stop it with a new savepoint "
            "(exactum savepoint create --stop), and move it by that. Nothing was changed.",
        )
    known = manifest.incarnations
    is_as_it_stopped = known is not None and all(r.incarnation in known for r, _ in runs(files))
    past = cut.past(files, manifest.batch_id, is_as_it_stopped)
    names = listed(files, REPLAYS, "what dead letters were replayed")
    replays = cut.replays_of(f"{REPLAYS}/{name}" for name in names)
    if not past and replays - cut.replays_of(file.path for file in manifest.files):
        past = "has replayed dead letters"
    if past:
        raise CheckpointRefused(
            "SAVEPOINT_BEHIND",
            f"The query of checkpoint {files.where} {past} since this savepoint of epoch "
            f"{manifest.batch_id} was made, and under its own identity it never goes back: make a "
            "new savepoint of it, or start a fork (--as fork). Nothing was changed.",
        )


# ---- the copy ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Claim:
    """For which savepoint a place is taken, and the query id of a fork: a command that is repeated
    makes the very same of it.
    """

    savepoint: str
    fork_id: str | None


def _claim(place: Storage) -> _Claim | None:
    text = place.read(f"{RESTORING}/{BEGUN}")
    return None if text is None else _Claim(**json.loads(text))


def _ended(place: Storage) -> bytes | None:
    return place.read(f"{RESTORING}/{ENDED}")


def _build(source: Storage, manifest: Manifest, place: Storage, fork_id: str | None) -> None:
    """Make a checkpoint of the savepoint in its place, but for the last step.

    ``fork_id`` is the query id of a fork: the decisions of the parent are not its own. None: the
    query keeps its identity.

    Raises:
        CheckpointRefused: the savepoint changed meanwhile, or lacks what it names.
        OSError, Unavailable, SettingRefused: a storage failed.
    """
    if isinstance(place, Folder):
        place.open(RESTORING)
    mine = _Claim(manifest.id, fork_id)
    place.create_if_absent(f"{RESTORING}/{BEGUN}", json.dumps(asdict(mine)).encode())
    claim = _claim(place)
    if claim is None or (claim.savepoint, claim.fork_id is None) != (manifest.id, fork_id is None):
        raise _occupied(place)
    _fill(source, manifest, place, claim.fork_id)


def _fill(source: Storage, manifest: Manifest, place: Storage, fork_id: str | None) -> None:
    """Copy what is wanted, and make it a query's own."""
    left_out = [
        f.path
        for f in manifest.files
        if fork_id and (f.path == METADATA or f.path.rpartition("/")[0] in (DECISIONS, QUERY))
    ]
    wanted = [f for f in manifest.files if f.path not in left_out]
    try:
        copied = copy_files(source.below(CONTENT), place, [f.path for f in wanted])
    except Vanished:  # it is deleted meanwhile
        copied = ()
    if list(copied) != wanted:
        raise CheckpointRefused(
            "SAVEPOINT_DAMAGED",
            f"The savepoint {source.where} changed while it was copied. Nothing was changed.",
        )
    _point_to_schemas(place, [f.path for f in wanted])
    if fork_id:
        place.put(METADATA, json.dumps({"id": fork_id}).encode())
        _hand_down_replays(place, manifest.query_id)
    _put_on_record(source, manifest, place, fork_id)


def _put_on_record(
    source: Storage, manifest: Manifest, place: Storage, fork_id: str | None
) -> None:
    """Of which savepoint it was made. A fork reads the topics of its parent, and its state was
    computed with the same settings; sinks, decisions and rows that wait are the parent's alone.
    """
    restored = Restoration(manifest.id, fork=fork_id is not None)
    parent = record_of(source.below(CONTENT), manifest.query_id).content
    record_of(place, fork_id or manifest.query_id).change(
        lambda record: changed(
            record, restored=restored, topics=parent.topics, settings=parent.settings
        )
    )


def _hand_down_replays(place: Storage, parent: str) -> None:
    """What the parent has sent again of its dead letters is not the fork's to send: it knows that
    of the records, which stay the parent's.
    """
    records = [entry.name for entry in place.entries(REPLAYS) if "/" not in entry.name]
    own = f"{REPLAYS}/{OF_PARENT}{parent}"
    place.move_if_absent([(f"{REPLAYS}/{name}", f"{own}/{name}") for name in records])


def _point_to_schemas(place: Storage, paths: list[str]) -> None:
    """Spark names state schemas by absolute paths: let them lead into the new place, not into the
    original one.

    Raises:
        CheckpointRefused: a schema that is named is not in the savepoint.
    """
    root = f"file:{place.root}" if isinstance(place, Folder) else place.where
    for path in sorted(filter(_METADATA_FILE.fullmatch, paths)):
        head, _, body = (place.read(path) or b"").decode().partition("\n")
        value = json.loads(body)
        for store in value.get("stateStoreInfo", ()):
            names = [_SCHEMA_FILE.fullmatch(name) for name in store.get("stateSchemaFilePaths", ())]
            if any(
                name is None or not stays_below(name[1]) or name[1] not in paths for name in names
            ):
                raise CheckpointRefused(
                    "SAVEPOINT_DAMAGED",
                    f"The savepoint lacks a state schema that {path} names: {store}. Its "
                    "checkpoint was copied by hand from another place: make it from the original. "
                    "Nothing was changed.",
                )
            store["stateSchemaFilePaths"] = [
                f"{root}/{name[1]}" for name in names if name is not None
            ]
        place.put(path, f"{head}\n{json.dumps(value, separators=(',', ':'))}".encode())
