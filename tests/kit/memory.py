"""A folder in memory, for what the tests' servers flush thousands of times. A server that is killed
loses nothing by it: only the end of the machine would take more than it takes from a disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

MEMORY = Path("/dev/shm")
ROOM_MIN = 4 * 2**30
"""Bytes that must be free there, and in memory itself, which may be less: for the servers of all
test processes. Containers often have 64 MB of it.
"""


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """Removed at the end. Where there is no room in memory it lies where temporary files do."""
    place = MEMORY if os.access(MEMORY, os.W_OK) and room() >= ROOM_MIN else None
    with tempfile.TemporaryDirectory(
        prefix="exactum-", dir=place, ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


def room() -> int:
    return min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available)
