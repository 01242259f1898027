"""The record of a query, wherever its checkpoint lies: in a folder, or where only Hadoop's file
systems get, as HDFS and object stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from exactum.errors import SettingRefused, Unavailable
from exactum.spark.jvm.error import JvmError, reason_of
from exactum.spark.jvm.hadoop_files import HadoopFiles

DENIED = ("AccessControlException", "AccessDeniedException")
"""How Hadoop's file systems call it that a user may not read or write."""


@dataclass(frozen=True)
class HadoopStorage:
    """See ``query_record.RecordStorage``."""

    files: HadoopFiles
    where: str

    def open(self) -> None:
        """Nothing: a file makes the folders above it."""

    def names(self) -> list[str]:
        with self._explained("read"):
            return self.files.names("")

    def read(self, name: str) -> bytes | None:
        with self._explained("read"):
            text = self.files.read(name)
        return None if text is None else text.encode()

    def create_if_absent(self, name: str, content: bytes) -> bool:
        with self._explained("written"):
            return self.files.create(name, content.decode())

    def delete(self, names: Sequence[str]) -> None:
        with self._explained("written"):
            for name in names:
                self.files.remove(name)

    @contextmanager
    def _explained(self, done: str) -> Iterator[None]:
        """
        Raises:
            SettingRefused: this user may not do that.
            Unavailable: the file system does not answer.
        """
        try:
            yield
        except JvmError as error:
            what = f"{self.where} could not be {done}: {reason_of(error)}."
            if any(word in str(error) for word in DENIED):
                raise SettingRefused(
                    "FOLDER_ACCESS",
                    f"{what} The checkpoint must be where this user may read and write. Nothing "
                    "was written.",
                ) from error
            raise Unavailable(f"{what} Nothing was written; start the query again.") from error
