"""A file system that is soon full, or may not be written. Only root can mount one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(place: Path, options: str = "size=1m") -> Iterator[Path]:
    """In memory, at a folder that this makes; ``options`` are mount's."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def remount(place: Path, mode: str) -> None:
    """``mode``: ro or rw."""
    subprocess.run(["mount", "-o", f"remount,{mode}", str(place)], check=True)
