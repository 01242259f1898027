"""The JVM's class archive: made by one training run, it saves every later life two seconds of loading classes."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

# Short lives: start fast rather than run fast.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xlog:disable -Xlog:all=error:stderr"


@functools.cache
def archive_file() -> Path:
    """Where it is once it was trained. Removed when the tests end."""
    folder = tempfile.mkdtemp(prefix="exactum-classes-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder, "spark.jsa")


def using() -> str:
    """JVM options that load it, if it is there."""
    path = archive_file()
    return f"{JVM_OPTIONS} -XX:SharedArchiveFile={path}" if path.exists() else JVM_OPTIONS


def training() -> str:
    """JVM options that write it at exit."""
    return f"{JVM_OPTIONS} -XX:ArchiveClassesAtExit={archive_file()}"
