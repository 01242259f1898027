"""Many folders made durable at once, and what a full file system is told apart by."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from exactum.durable import sync_folder

SYNCS_AT_ONCE = 8
"""How many folders are fsynced at the same time: a journal takes them together."""


def sync_folders(folders: Iterable[str]) -> None:
    """fsync several folders, several at a time. One that is gone is left out: there is nothing to
    lose in it.
    """
    wanted = sorted(set(folders))
    if len(wanted) <= 1:
        for folder in wanted:
            _sync_if_there(folder)
        return
    with ThreadPoolExecutor(min(SYNCS_AT_ONCE, len(wanted)), "exactum-fsync") as pool:
        list(pool.map(_sync_if_there, wanted))


def free_bytes(path: str | Path) -> str:
    """Text on the room left on the file system of ``path``, for messages: bytes and files
    (inodes).
    """
    try:
        found = os.statvfs(path)
    except OSError as error:
        return f"the room left there is unknown ({error})"
    return f"{found.f_bavail * found.f_frsize:,} bytes and {found.f_favail:,} files are free there"


def _sync_if_there(folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        sync_folder(folder)
