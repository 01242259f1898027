"""Files on any file system that the JVM knows, by Hadoop's FileSystem."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from exactum.checkpoint.offset_log import highest_batch
from exactum.errors import SettingRefused, Unavailable
from exactum.spark.jvm.java_class import JvmError, java_class, reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DENIED = ("AccessControlException", "AccessDeniedException")
"""How Hadoop's file systems call it that a user may not read or write."""


class HadoopFiles:
    """The files below the folder ``where``, a URI as Spark prints it; see
    ``query_record.RecordStorage``.

    Raises:
        Unavailable: the file system does not answer.
        SettingRefused: it does not let this user read or write.
    """

    def __init__(self, session: SparkSession, where: str) -> None:
        plain: Any = session
        self.where = where
        self._session = session
        self._texts = java_class(session, "org.apache.commons.io.IOUtils")
        self._paths = java_class(session, "org.apache.hadoop.fs.Path")
        self._configuration = plain._jsparkSession.sessionState().newHadoopConf()

    def below(self, prefix: str) -> HadoopFiles:
        return HadoopFiles(self._session, f"{self.where}/{prefix}")

    def open(self) -> None:
        """Nothing: a file makes the folders above it."""

    def read(self, name: str) -> bytes | None:
        """What a file holds, which is text; None where there is none."""
        with self._at(name, "read") as (path, files):
            if not files.exists(path):
                return None
            stream = files.open(path)
            try:
                return str(self._texts.toString(stream, "UTF-8")).encode()
            finally:
                stream.close()

    def names(self, prefix: str = "") -> list[str]:
        """The names in a folder, in no order; none where there is no folder."""
        with self._at(prefix, "read") as (path, files):
            found = files.listStatus(path) if files.exists(path) else ()
            return [str(status.getPath().getName()) for status in found]

    def newest(self, log: str) -> str | None:
        """The text of the last file of a log of Spark's, which numbers them; None: it has none."""
        last = highest_batch(self.names, log)
        content = None if last is None else self.read(f"{log}/{last}")
        return None if content is None else content.decode()

    def create_if_absent(self, name: str, content: bytes) -> bool:
        """Create a file, whole, if it is absent, and make it durable; False if it was there.
        A reader never sees half of it. By one writer at a time: not every file system refuses a
        rename onto a file.
        """
        with self._at(name, "written") as (path, files):
            if files.exists(path):
                return False
            hidden = f".{path.getName()}.{secrets.token_hex(8)}.tmp"
            temporary, renamed = self._paths(path.getParent(), hidden), False
            try:
                stream = files.create(temporary, True)
                try:
                    stream.write(bytearray(content))
                    if stream.hasCapability("hsync"):
                        stream.hsync()
                finally:
                    stream.close()
                renamed = bool(files.rename(temporary, path))
            finally:
                if not renamed:
                    files.delete(temporary, False)
            return renamed

    def delete(self, names: Sequence[str]) -> None:
        """Each with the checksum that its file system keeps of it, where it is there."""
        for name in names:
            with self._at(name, "written") as (path, files):
                files.delete(path, False)

    def like(self, patterns: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Path and bytes of those that a pattern fits: one call for each pattern, which an object
        store answers with listings.
        """
        for pattern in patterns:
            with self._at(pattern, "read") as (path, files):
                found = files.globStatus(path) or ()
                sizes = [(str(s.getPath().toString()), int(s.getLen())) for s in found]
            yield from sizes

    @contextmanager
    def _at(self, name: str, done: str) -> Iterator[tuple[Any, Any]]:
        """The path of a file, and its file system."""
        path = self._paths(f"{self.where}/{name}")
        try:
            yield path, path.getFileSystem(self._configuration)
        except JvmError as error:
            what = f"{self.where} could not be {done}: {reason_of(error)}."
            if any(word in str(error) for word in DENIED):
                raise SettingRefused(
                    "FOLDER_ACCESS",
                    f"{what} The checkpoint must be where this user may read and write. Nothing "
                    "was written.",
                ) from error
            raise Unavailable(f"{what} Nothing was written; start the query again.") from error
