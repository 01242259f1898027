"""What the small JSON records in a checkpoint have in common: a version, and how one is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from exactum.durable import names_in
from exactum.errors import CheckpointRefused

T = TypeVar("T")

VERSION = 1


class _Versioned(msgspec.Struct):
    version: int


def decoded(where: str, text: bytes, kind: type[T]) -> T:
    """
    Raises:
        msgspec.MsgspecError: it is damaged.
        CheckpointRefused: it is of a newer version.
    """
    version = msgspec.json.decode(text, type=_Versioned).version
    if version != VERSION:
        raise CheckpointRefused(
            "RECORD_VERSION",
            f"{where} has version {version}; this exactum reads version {VERSION}. The query was "
            "last run by a newer exactum: install that one again. Nothing of this batch was "
            "written.",
        )
    return msgspec.json.decode(text, type=kind)


def damaged(where: str, why: object) -> CheckpointRefused:
    return CheckpointRefused(
        "CHECKPOINT_DAMAGED",
        f"{where} cannot be read ({why}): it is a record that this query needs. Restore it from a "
        "backup of the checkpoint. Nothing of this batch was written.",
    )


def listed(folder: Path, says: str, *, not_done: str = "changed") -> list[str]:
    """What is in a folder of the checkpoint; ``says`` tells what that is about. Nothing where
    there is none. One that cannot be read is not the same.

    Raises:
        CheckpointRefused: the folder could not be read; nothing was ``not_done``.
    """
    try:
        return names_in(folder)
    except OSError as error:
        raise CheckpointRefused(
            "CHECKPOINT_ACCESS",
            f"{folder}, which says {says}, could not be read ({error}). Run this as a user who may "
            f"read the checkpoint, while its file system answers. Nothing was {not_done}.",
        ) from error
