"""The new checkpoint that a savepoint is made into, beside its place."""

from __future__ import annotations

import json
import re
import secrets
import shutil
from pathlib import Path

from msgspec.structs import replace

from exactum.checkpoint.layout import DECISIONS, OF_PARENT, QUERY, REPLAYS
from exactum.checkpoint.query_record import Restoration, record_of
from exactum.checkpoint.savepoint.copies import copy_files
from exactum.checkpoint.savepoint.manifest import CONTENT, Manifest
from exactum.durable import make_folder, names_in, stays_below, sync_folder, write_durably
from exactum.errors import CheckpointRefused

_SCHEMA_FILE = re.compile(r".*/(state/\d+/_stateSchema/.+)")


def build(savepoint: Path, manifest: Manifest, folder: Path, fork_id: str | None) -> Path:
    """Make a checkpoint of the savepoint, beside ``folder``, which is to be its place.

    ``fork_id`` is the query id of a fork: the decisions of the parent are not its own. None: the
    query keeps its identity.

    Raises:
        CheckpointRefused: the savepoint changed meanwhile, or lacks what it names.
        OSError: the file system failed.
    """
    make_folder(folder.parent)
    built = folder.with_name(f".{folder.name}.restoring-{secrets.token_hex(4)}")
    built.mkdir()
    try:
        left_out = [
            f.path
            for f in manifest.files
            if fork_id and (f.path == "metadata" or Path(f.path).parent in (DECISIONS, QUERY))
        ]
        wanted = [f for f in manifest.files if f.path not in left_out]
        copied = copy_files(savepoint / CONTENT, built, [f.path for f in wanted])
        if list(copied) != wanted:
            raise CheckpointRefused(
                "SAVEPOINT_DAMAGED",
                f"The savepoint {savepoint} changed while it was copied. Nothing was changed.",
            )
        _point_to_schemas(built, folder)
        if fork_id:
            write_durably(built / "metadata", json.dumps({"id": fork_id}).encode())
            _hand_down_replays(built, manifest.query_id)
        _put_on_record(savepoint, manifest, built, fork_id)
        sync_folder(built)
    except BaseException:
        shutil.rmtree(built, ignore_errors=True)
        raise
    return built


def _put_on_record(savepoint: Path, manifest: Manifest, built: Path, fork_id: str | None) -> None:
    """Of which savepoint it was made. A fork reads the topics of its parent, and its state was
    computed with the same settings; sinks, decisions and rows that wait are the parent's alone.
    """
    restored = Restoration(manifest.id, fork=fork_id is not None)
    parent = record_of(savepoint / CONTENT, manifest.query_id).content
    record_of(built, fork_id or manifest.query_id).change(
        lambda record: replace(
            record, restored=restored, topics=parent.topics, settings=parent.settings
        )
    )


def _hand_down_replays(built: Path, parent: str) -> None:
    """What the parent has sent again of its dead letters is not the fork's to send: it knows that
    of the records, which stay the parent's.
    """
    records = [p for name in names_in(built / REPLAYS) if (p := built / REPLAYS / name).is_file()]
    if not records:
        return
    place = built / REPLAYS / f"{OF_PARENT}{parent}"
    place.mkdir()
    for record in records:
        record.rename(place / record.name)
    sync_folder(place)
    sync_folder(place.parent)


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
                    "SAVEPOINT_DAMAGED",
                    f"The savepoint lacks a state schema that {path.relative_to(built)} names: "
                    f"{store}. Its checkpoint was copied by hand from another place: make it from "
                    "the original. Nothing was changed.",
                )
            store["stateSchemaFilePaths"] = [
                f"file:{folder}/{name[1]}" for name in names if name is not None
            ]
        path.unlink()
        write_durably(path, f"{head}\n{json.dumps(value, separators=(',', ':'))}".encode())
        sync_folder(path.parent)
