"""Small steps on a file system that survive a power failure: what is fsynced, and in which
order.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

OF_THE_SETTING = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR})
"""Errors of a place that may not be written, whenever it is tried again; a full disk is none of
them.
"""


def stays_below(path: str) -> bool:
    """Whether a relative path that was read somewhere stays below the folder that it is joined to.

    It is made of plain names: none is empty, ``.`` or ``..``, and there is no NUL. Links are
    another matter.
    """
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


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


def create_whole(path: Path, content: bytes) -> bool:
    """Create ``path`` with ``content`` if it is absent; False if it was there. A reader never sees
    half of it.

    Its folder is the caller's to make and to fsync. Of many who try at once, one is told True. What
    a crash leaves is hidden and ends in ``.tmp``. A network file system may say EEXIST of a link
    that it has made itself, when its first answer was lost: the second name of our own file tells.

    Raises:
        OSError: the file system failed, or has no hard links.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        write_durably(temporary, content)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return os.stat(temporary).st_nlink > 1
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return True


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
