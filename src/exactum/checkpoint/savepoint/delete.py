"""Deletes a savepoint, and nothing that is none."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from exactum.checkpoint.savepoint.manifest import CONTENT, MANIFEST
from exactum.durable import sync_folder
from exactum.errors import CheckpointRefused


def delete(savepoint: Path) -> None:
    """Delete a savepoint, a damaged one too. First its name goes: half a savepoint is never taken
    for one.

    Raises:
        CheckpointRefused: the folder is no savepoint, or holds other files besides.
    """
    savepoint = savepoint.absolute()
    there = {p.name for p in savepoint.iterdir()} if savepoint.is_dir() else set()
    if MANIFEST not in there or not there <= {MANIFEST, CONTENT}:
        raise CheckpointRefused(
            "SAVEPOINT_PLACE",
            f"{savepoint} is not a savepoint: a folder with {MANIFEST} and {CONTENT}/ and nothing "
            "else. Nothing was deleted.",
        )
    doomed = savepoint.with_name(f".{savepoint.name}.deleting-{secrets.token_hex(4)}")
    os.rename(savepoint, doomed)
    sync_folder(savepoint.parent)
    shutil.rmtree(doomed)
