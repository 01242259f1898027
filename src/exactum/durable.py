"""Small steps on a file system that survive a power failure: what is fsynced, and in which order."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: str | Path, content: bytes) -> None:
    """Create ``path`` with ``content`` and fsync it; its folder is the caller's to fsync.

    Raises:
        FileExistsError: it is there already.
        OSError: the file system failed; a torn file may be left.
    """
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: str | Path) -> None:
    """fsync a folder: the names in it are durable when this returns. Idempotent."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: str | Path) -> None:
    """Make a folder and its missing parents, each one durable before the next. Idempotent."""
    path = Path(folder)
    missing = [p for p in (path, *path.parents) if not p.exists()]
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_folder(one.parent)
