"""Files on any file system that the JVM knows, by Hadoop's FileSystem; a query's record there."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exactum.errors import SettingRefused, Unavailable
from exactum.spark.jvm.java_class import JvmError, java_class, reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFiles:
    """The files below the folder ``root``, a URI as Spark prints it.

    Every method raises JvmError where the file system does not answer.
    """

    def __init__(self, session: SparkSession, root: str) -> None:
        plain: Any = session
        self._root = root
        self._texts = java_class(session, "org.apache.commons.io.IOUtils")
        self._paths = java_class(session, "org.apache.hadoop.fs.Path")
        self._configuration = plain._jsparkSession.sessionState().newHadoopConf()

    def read(self, relative: str) -> str | None:
        """The text of a file; None where there is none."""
        path = self._path(relative)
        files = path.getFileSystem(self._configuration)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return str(self._texts.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def names(self, relative: str) -> list[str]:
        """The names in a folder, in no order; none where there is no folder."""
        path = self._path(relative)
        files = path.getFileSystem(self._configuration)
        if not files.exists(path):
            return []
        return [str(status.getPath().getName()) for status in files.listStatus(path)]

    def newest(self, log: str) -> str | None:
        """The text of the last file of a log of Spark's, which numbers them; None: it has none."""
        numbers = [int(name) for name in self.names(log) if name.isdigit()]
        return self.read(f"{log}/{max(numbers)}") if numbers else None

    def create(self, relative: str, text: str) -> bool:
        """Create a file, whole, if it is absent, and make it durable; False if it was there.
        A reader never sees half of it. By one writer at a time: not every file system refuses a
        rename onto a file.
        """
        path = self._path(relative)
        files = path.getFileSystem(self._configuration)
        if files.exists(path):
            return False
        temporary = self._paths(path.getParent(), f".{path.getName()}.{secrets.token_hex(8)}.tmp")
        renamed = False
        try:
            stream = files.create(temporary, True)
            try:
                stream.write(bytearray(text.encode()))
                if stream.hasCapability("hsync"):
                    stream.hsync()
            finally:
                stream.close()
            renamed = bool(files.rename(temporary, path))
        finally:
            if not renamed:
                files.delete(temporary, False)
        return renamed

    def like(self, patterns: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Path and bytes of those that a pattern fits: one call for each pattern, which an object
        store answers with listings.
        """
        for pattern in patterns:
            path = self._path(pattern)
            for status in path.getFileSystem(self._configuration).globStatus(path) or ():
                yield str(status.getPath().toString()), int(status.getLen())

    def remove(self, relative: str) -> bool:
        """Remove a file, with the checksum that its file system keeps of it; False where there is
        none.
        """
        path = self._path(relative)
        return bool(path.getFileSystem(self._configuration).delete(path, False))

    def _path(self, relative: str) -> Any:
        return self._paths(f"{self._root}/{relative}")


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
