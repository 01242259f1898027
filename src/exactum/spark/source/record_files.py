"""The files of a record in a query's checkpoint, wherever that lies: each is created once, whole
and durable, and never changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from exactum.checkpoint.offset_log import local_folder
from exactum.durable import OF_THE_SETTING, create_whole, make_folder, sync_folder
from exactum.errors import CheckpointRefused, Unavailable
from exactum.spark.jvm.error import JvmError
from exactum.spark.jvm.hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = 1
DENIED = ("AccessControlException", "AccessDeniedException")
"""How Hadoop's file systems call it that a user may not write."""


class RecordFiles(Protocol):
    """The JSON files in one folder."""

    def names(self) -> list[str]:
        """The files that are there, in no order."""

    def read(self, name: str) -> dict[str, Any]:
        """What a file says.

        Raises:
            CheckpointRefused: it is damaged or of a newer version.
        """

    def create(self, name: str, value: dict[str, Any]) -> bool:
        """Create a file, whole, if it is absent, and make it durable. False if it was there.

        Raises:
            CheckpointRefused: the folder may not be written.
            Unavailable: it could not be: a full disk.
        """


def record_files(session: SparkSession, checkpoint: str, below: Path) -> RecordFiles:
    """Those in the folder ``below`` a checkpoint, whose root is as Spark prints it."""
    folder = local_folder(checkpoint)
    if folder is not None:
        return FolderFiles(folder / below)
    return HadoopRecord(HadoopFiles(session, checkpoint), f"{checkpoint}/{below}", str(below))


@dataclass(frozen=True)
class FolderFiles:
    """On a local or shared file system."""

    folder: Path

    def names(self) -> list[str]:
        """See the port."""
        return [p.name for p in self.folder.glob("*.json") if not p.name.startswith(".")]

    def read(self, name: str) -> dict[str, Any]:
        """See the port."""
        path = self.folder / name
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise _damaged(str(path), error) from error
        return _parsed(str(path), text)

    def create(self, name: str, value: dict[str, Any]) -> bool:
        """See the port."""
        path = self.folder / name
        try:
            make_folder(self.folder)
            created = create_whole(path, json.dumps(value).encode())
            sync_folder(self.folder)
        except OSError as error:
            raise _unwritten(str(path), error, error.errno in OF_THE_SETTING) from error
        return created


@dataclass(frozen=True)
class HadoopRecord:
    """On any other file system that the JVM knows, as an object store. ``place`` names the folder
    in errors, ``below`` is its path from the root of ``files``.
    """

    files: HadoopFiles
    place: str
    below: str

    def names(self) -> list[str]:
        """See the port."""
        found = self.files.names(self.below)
        return [name for name in found if name.endswith(".json") and not name.startswith(".")]

    def read(self, name: str) -> dict[str, Any]:
        """See the port."""
        text = self.files.read(f"{self.below}/{name}")
        return _parsed(f"{self.place}/{name}", text or "")

    def create(self, name: str, value: dict[str, Any]) -> bool:
        """See the port."""
        try:
            return self.files.create(f"{self.below}/{name}", json.dumps(value))
        except JvmError as error:
            denied = any(word in str(error) for word in DENIED)
            raise _unwritten(f"{self.place}/{name}", error, denied) from error


def _parsed(where: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
        version = value["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(where, error) from error
    if version != VERSION:
        raise CheckpointRefused(
            f"{where} has version {version}; this exactum reads version {VERSION}. The query was "
            "last run by a newer exactum: install that one again. Nothing of this batch was "
            "written."
        )
    return dict(value)


def _damaged(where: str, error: Exception) -> CheckpointRefused:
    return CheckpointRefused(
        f"{where} cannot be read ({type(error).__name__}: {error}): it says what this query "
        "reads. Restore it from a backup of the checkpoint. Nothing of this batch was written."
    )


def _unwritten(where: str, error: Exception, denied: bool) -> CheckpointRefused | Unavailable:
    what = f"exactum could not write {where} ({error}), where it records what this query reads."
    if denied:
        return CheckpointRefused(
            f"{what} The checkpoint must be in a folder that this user may write to. Nothing "
            "of this batch was written."
        )
    return Unavailable(f"{what} Nothing of this batch was written; start the query again.")
