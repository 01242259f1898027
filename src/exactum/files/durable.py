"""Small steps on a file system that survive a power failure: what is fsynced, and in which order."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SYNCS_AT_ONCE = 8
"""How many folders are fsynced at the same time: a journal takes them together."""


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


def sync_folders(folders: Iterable[str]) -> None:
    """fsync several folders, several at a time. One that is gone is left out: there is nothing to lose in it."""
    wanted = sorted(set(folders))
    if len(wanted) <= 1:
        for folder in wanted:
            _sync_if_there(folder)
        return
    with ThreadPoolExecutor(min(SYNCS_AT_ONCE, len(wanted)), "exactum-fsync") as pool:
        list(pool.map(_sync_if_there, wanted))


def make_folder(folder: str | Path) -> None:
    """Make a folder and its missing parents, each one durable before the next. Idempotent."""
    path = Path(folder)
    missing = [p for p in (path, *path.parents) if not p.exists()]
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_folder(one.parent)


def free_bytes(path: str | Path) -> str:
    """Text on the room left on the file system of ``path``, for messages: bytes and files (inodes)."""
    try:
        found = os.statvfs(path)
    except OSError as error:
        return f"the room left there is unknown ({error})"
    return f"{found.f_bavail * found.f_frsize:,} bytes and {found.f_favail:,} files are free there"


def _sync_if_there(folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        sync_folder(folder)
