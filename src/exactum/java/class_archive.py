"""The JVM's archives of loaded classes: with one, a broker starts in half the time, a Spark driver
seconds earlier.

They are kept in the cache, one for each Java and set of jars. The JVM checks an archive against its
own version and the class path, and runs without it where it does not fit. A broker's is written by
the first one that is stopped cleanly (that stop takes some 3 s longer); Spark's by
``exactum.spark.startup.class_archive``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from exactum.durable import sync_file
from exactum.java.jars import cache_folder
from exactum.java.program import java_program

MADE_NAME = "classes.jsa"
SILENCE = "-Xlog:cds*=off"
"""An archive that does not fit is no news for who reads the program's output."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive of one program's classes.

    Attributes:
        path: where it is kept; it may not exist yet.
    """

    path: Path

    def reading_options(self) -> list[str]:
        """Return the JVM options that use it, none while there is no archive that this user may
        read.
        """
        usable = os.access(self.path, os.R_OK)
        return [f"-XX:SharedArchiveFile={self.path}", SILENCE] if usable else []

    def making_options(self, folder: Path) -> list[str]:
        """Return the JVM options that write one into ``folder`` when the JVM ends by itself."""
        return [f"-XX:ArchiveClassesAtExit={folder / MADE_NAME}", SILENCE]

    def keep_made(self, folder: Path) -> bool:
        """Move a finished archive from ``folder`` into the cache, by one rename; False if none is
        there. Idempotent.

        It must be called only after the JVM ended by itself: a killed one may leave half a file,
        and a JVM that loads half an archive crashes.
        """
        made = folder / MADE_NAME
        if not made.exists():
            return False
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(
                prefix=f".{self.path.stem}-", dir=self.path.parent
            ) as beside:
                copy = Path(beside) / MADE_NAME
                shutil.copyfile(made, copy)
                sync_file(copy)
                os.replace(copy, self.path)
        made.unlink()
        return True


def archive_of(name: str, jars: Iterable[Path], made_of: bytes = b"") -> ClassArchive:
    """The archive of a program with these jars and the installed Java; it may not be made yet.
    ``made_of``: which of their classes it has, where that is not left to the JVM.

    A JVM takes an archive for these very jars only, by path, size and time: installed again, they
    are others. The time is in seconds, as it is in a layer of a container image. Raises
    LocalServerError without Java.
    """
    digest = hashlib.sha256(made_of)
    for file in (Path(java_program("java")).resolve(), *sorted(jars)):
        seen = file.stat()
        digest.update(f"{file} {seen.st_size} {int(seen.st_mtime)}\n".encode())
    return ClassArchive(cache_folder() / "classes" / f"{name}-{digest.hexdigest()[:16]}.jsa")
