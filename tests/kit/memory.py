"""A folder in memory, for what the tests' servers flush thousands of times. A server that is killed
loses nothing by it: only the end of the machine would take more than it takes from a disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

MEMORY = Path("/dev/shm")
MEMINFO = Path("/proc/meminfo")
ROOM_MIN = 4 * 2**30
"""Bytes that must be free there, and in memory itself, for the servers of all test processes;
containers often have 64 MB of it.
"""


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """Removed at the end. Where there is no room in memory it lies where temporary files do."""
    has_room = os.access(MEMORY, os.W_OK) and min(room(MEMORY), available()) >= ROOM_MIN
    with tempfile.TemporaryDirectory(
        prefix="exactum-", dir=MEMORY if has_room else None, ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


def room(folder: Path) -> int:
    """Bytes that are free on its file system."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def available() -> int:
    """Bytes of memory that a process can still have; a file system in memory may promise more."""
    with contextlib.suppress(OSError):
        found = re.search(r"^MemAvailable: +(\d+) kB$", MEMINFO.read_text(), re.MULTILINE)
        if found is not None:
            return int(found[1]) * 1024
    return 0
