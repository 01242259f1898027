"""The history of a query: facts in files beside its checkpoint, bounded, and written off the path.

    <checkpoint>/exactum/history/<began_ms>-<writer>.jsonl   facts, a line each

Each writer has files of its own, so a driver, its successor and a supervisor never write to one.
A file that is full is followed by a new one, and the oldest go. Nothing is fsynced and nothing is
decided by it: what a crash or a full disk takes is missing from a picture, and from nothing else.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from exactum.checkpoint.layout import HISTORY
from exactum.monitor.fact import Fact

SEGMENT_BYTES_MAX = 1 << 20
HISTORY_BYTES_MAX = 16 << 20
FILES_MAX = 200


class HistoryWriter:
    """Appends to the history of one query. Used by one thread.

    Nothing is made before the first fact. Raises OSError, also where the folder is gone: a
    checkpoint that somebody has removed is not made anew.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._folder = checkpoint / HISTORY
        self._writer = secrets.token_hex(4)
        self._path: Path | None = None

    def write(self, facts: Sequence[Fact]) -> None:
        """
        Raises:
            OSError: they could not be written, or not all of them.
        """
        if not facts:
            return
        if not self._folder.is_dir():
            if not self._checkpoint.is_dir():
                raise FileNotFoundError(f"the checkpoint {self._checkpoint} is gone")
            self._folder.mkdir(parents=True, exist_ok=True)
        data = "".join(f"{fact.to_line()}\n" for fact in facts).encode()
        with self._segment().open("ab") as file:
            file.write(data)

    def _segment(self) -> Path:
        path = self._path
        if path is None or not path.exists() or path.stat().st_size >= SEGMENT_BYTES_MAX:
            self._prune()
            path = self._folder / f"{time.time_ns() // 1_000_000}-{self._writer}.jsonl"
            self._path = path
        return path

    def _prune(self) -> None:
        """Make room for one more segment; the oldest go, by the time in their names."""
        kept, size = 1, SEGMENT_BYTES_MAX
        for path in reversed(segments(self._folder)):
            size += size_of(path)
            kept += 1
            if size > HISTORY_BYTES_MAX or kept > FILES_MAX:
                path.unlink(missing_ok=True)


def segments(folder: Path) -> list[Path]:
    """The history's files, oldest first."""
    found = [path for path in folder.glob("*.jsonl") if began_ms(path) is not None]
    return sorted(found, key=lambda path: (began_ms(path) or 0, path.name))


def began_ms(path: Path) -> int | None:
    """When the file was begun; None where it is none of a history."""
    began, dash, _ = path.name.partition("-")
    return int(began) if dash and began.isdigit() else None


def size_of(path: Path) -> int:
    """0 where it has just made room for newer ones."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
