"""The JVM's archive of Kafka's loaded classes: with it a broker starts in half the time.

The first broker that is stopped cleanly writes it (that stop takes some 3 s longer), and it is
kept in the cache. The JVM checks it against its own version and the class path, and runs without
it where it does not fit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from exactum.local.jars import broker_jars, cache_folder
from exactum.local.java import java_program

MADE_NAME = "classes.jsa"


def archive_file() -> Path:
    """Return where the archive for this Java and these jars is kept (it may not exist yet)."""
    java = Path(java_program("java")).resolve()
    made_for = f"{java} {java.stat().st_mtime_ns} {broker_jars()[0].parent}"
    digest = hashlib.sha256(made_for.encode()).hexdigest()[:16]
    return cache_folder() / "classes" / f"kafka-{digest}.jsa"


def reading_options() -> list[str]:
    """Return the JVM options that use the archive, none while there is no archive."""
    archive = archive_file()
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def making_options(folder: Path) -> list[str]:
    """Return the JVM options that write the archive into `folder` when the JVM ends by itself."""
    return [f"-XX:ArchiveClassesAtExit={folder / MADE_NAME}"]


def keep_made(folder: Path) -> None:
    """Move a finished archive from `folder` into the cache, by one rename. Idempotent.

    It must be called only after the JVM ended by itself: a killed one may leave half a file.
    """
    made, kept = folder / MADE_NAME, archive_file()
    if not made.exists():
        return
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".kafka-", dir=kept.parent) as beside:
            copy = Path(beside) / MADE_NAME
            shutil.copyfile(made, copy)
            os.replace(copy, kept)
    made.unlink()
