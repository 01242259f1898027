"""The files of a record in a query's checkpoint, wherever that lies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exactum.checkpoint.offset_log import local_folder
from exactum.checkpoint.record_folder import FolderFiles, RecordFiles, parsed, unread, unwritten
from exactum.spark.jvm.error import JvmError, reason_of
from exactum.spark.jvm.hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DENIED = ("AccessControlException", "AccessDeniedException")
"""How Hadoop's file systems call it that a user may not write."""


def record_files(session: SparkSession, checkpoint: str, below: Path) -> RecordFiles:
    """Those in the folder ``below`` a checkpoint, whose root is as Spark prints it."""
    folder = local_folder(checkpoint)
    if folder is not None:
        return FolderFiles(folder / below)
    return HadoopRecord(HadoopFiles(session, checkpoint), f"{checkpoint}/{below}", str(below))


@dataclass(frozen=True)
class HadoopRecord:
    """On any file system that the JVM knows, as an object store. ``place`` names the folder in
    errors, ``below`` is its path from the root of ``files``.
    """

    files: HadoopFiles
    place: str
    below: str

    def __str__(self) -> str:
        return self.place

    def names(self) -> list[str]:
        """See the port."""
        with self._answering(self.place):
            found = self.files.names(self.below)
        return [name for name in found if name.endswith(".json") and not name.startswith(".")]

    def read(self, name: str) -> dict[str, Any]:
        """See the port."""
        with self._answering(f"{self.place}/{name}"):
            text = self.files.read(f"{self.below}/{name}")
        return parsed(f"{self.place}/{name}", text or "")

    def create(self, name: str, value: dict[str, Any]) -> bool:
        """See the port."""
        try:
            return self.files.create(f"{self.below}/{name}", json.dumps(value))
        except JvmError as error:
            raise unwritten(f"{self.place}/{name}", reason_of(error), _denied(error)) from error

    @contextmanager
    def _answering(self, where: str) -> Iterator[None]:
        """
        Raises:
            CheckpointRefused: this user may not read there.
            Unavailable: the file system does not answer.
        """
        try:
            yield
        except JvmError as error:
            raise unread(where, reason_of(error), _denied(error)) from error


def _denied(error: Exception) -> bool:
    return any(word in str(error) for word in DENIED)
