"""Files that survive a crash of the machine: written, then fsynced, and the folder that names them,
too.

Every function is idempotent as far as it says so, and raises plain ``OSError``: the caller knows
what it means.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from exactum import durable


def make_folder(folder: Path) -> None:
    """Make ``folder`` and its parents, each durable, and itself. Idempotent."""
    durable.make_folder(folder)
    durable.sync_folder(folder)


def sync_file(path: Path) -> None:
    """What was written to ``path``, by whichever descriptor, is durable after. Idempotent."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """What was created, renamed or removed in ``folder`` before is durable after. Idempotent."""
    durable.sync_folder(folder)


def touch(path: Path) -> None:
    """Create ``path`` empty, if it is not there. Durable after ``sync_folder`` of its folder.
    Idempotent.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666))


def create(path: Path) -> bool:
    """Create ``path`` empty; False if it is there already. Of many who try, one is told True."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        return False
    return True


def append(path: Path, text: str) -> None:
    """Append ``text`` and make it durable; the file must be there. Twice appends twice."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        content = text.encode()
        if os.write(descriptor, content) != len(content):
            raise OSError(errno.ENOSPC, "only a part could be written", str(path))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove ``path``. Durable after ``sync_folder`` of its folder. Idempotent."""
    path.unlink(missing_ok=True)
