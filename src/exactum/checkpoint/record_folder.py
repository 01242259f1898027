"""Records in a checkpoint's folder: JSON files that are each created once, whole and durable, and
never changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from exactum.durable import OF_THE_SETTING, create_whole, make_folder, names_in, sync_folder
from exactum.errors import CheckpointRefused, Unavailable

VERSION = 1


class RecordFiles(Protocol):
    """The JSON files in one folder."""

    def names(self) -> list[str]:
        """The files that are there, in no order.

        Raises:
            CheckpointRefused: the folder may not be read.
            Unavailable: its file system does not answer.
        """

    def read(self, name: str) -> dict[str, Any]:
        """What a file says.

        Raises:
            CheckpointRefused: it is damaged, of a newer version, or may not be read.
            Unavailable: its file system does not answer.
        """

    def create(self, name: str, value: dict[str, Any]) -> bool:
        """Create a file, whole, if it is absent, and make it durable. False if it was there.

        Raises:
            CheckpointRefused: the folder may not be written.
            Unavailable: it could not be: a full disk.
        """


@dataclass(frozen=True)
class FolderFiles:
    """On a local or shared file system."""

    folder: Path

    def __str__(self) -> str:
        return str(self.folder)

    def names(self) -> list[str]:
        """See the port."""
        try:
            names = names_in(self.folder)
        except OSError as error:
            raise self._unread(error) from error
        return [name for name in names if name.endswith(".json") and not name.startswith(".")]

    def read(self, name: str) -> dict[str, Any]:
        """See the port."""
        path = self.folder / name
        try:
            text = path.read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError) as error:
            raise damaged(str(path), error) from error
        except OSError as error:
            raise self._unread(error) from error
        return parsed(str(path), text)

    def create(self, name: str, value: dict[str, Any]) -> bool:
        """See the port."""
        path = self.folder / name
        try:
            make_folder(self.folder)
            created = create_whole(path, json.dumps(value).encode())
            sync_folder(self.folder)
        except OSError as error:
            raise unwritten(str(path), error, error.errno in OF_THE_SETTING) from error
        return created

    def _unread(self, error: OSError) -> CheckpointRefused | Unavailable:
        return unread(error.filename or str(self.folder), error, error.errno in OF_THE_SETTING)


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


def parsed(where: str, text: str) -> dict[str, Any]:
    """
    Raises:
        CheckpointRefused: it is damaged or of a newer version.
    """
    try:
        value = json.loads(text)
        version = value["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(where, error) from error
    if version != VERSION:
        raise CheckpointRefused(
            "RECORD_VERSION",
            f"{where} has version {version}; this exactum reads version {VERSION}. The query was "
            "last run by a newer exactum: install that one again. Nothing of this batch was "
            "written.",
        )
    return dict(value)


def damaged(where: str, error: Exception) -> CheckpointRefused:
    return CheckpointRefused(
        "CHECKPOINT_DAMAGED",
        f"{where} cannot be read ({type(error).__name__}: {error}): it is a record that this query "
        "needs. Restore it from a backup of the checkpoint. Nothing of this batch was written.",
    )


def unread(where: str, error: object, denied: bool) -> CheckpointRefused | Unavailable:
    """``denied``: this user may not read there."""
    what = f"exactum could not read {where} ({error}), a record that this query needs."
    if denied:
        return CheckpointRefused(
            "CHECKPOINT_ACCESS",
            f"{what} The checkpoint must be in a folder that this user may read. Nothing of this "
            "batch was written.",
        )
    return Unavailable(
        f"{what} Its file system does not answer. Nothing of this batch was written; start the "
        "query again."
    )


def unwritten(where: str, error: object, denied: bool) -> CheckpointRefused | Unavailable:
    """``denied``: this user may not write there."""
    what = f"exactum could not write {where} ({error}), a record that this query needs."
    if denied:
        return CheckpointRefused(
            "CHECKPOINT_ACCESS",
            f"{what} The checkpoint must be in a folder that this user may write to. Nothing "
            "of this batch was written.",
        )
    return Unavailable(f"{what} Nothing of this batch was written; start the query again.")
