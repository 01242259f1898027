"""The history of a query: facts in files beside its checkpoint, bounded, and written off the path.

    <checkpoint>/exactum/history/<began_ms>-<writer>.jsonl           facts, a line each
    <checkpoint>/exactum/history/<began_ms>-<writer>.minutes.jsonl   a summary of each minute

Each writer has files of its own, so a driver, its successor and a supervisor never write to one.
A file that is full is followed by a new one, and the oldest go. Nothing is fsynced and nothing is
decided by it: what a crash or a full disk takes is missing from a picture, and from nothing else.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from exactum.checkpoint.layout import HISTORY
from exactum.monitor.fact import Fact

SEGMENT_BYTES_MAX = 1 << 20
HISTORY_BYTES_MAX = 16 << 20
MINUTES_BYTES_MAX = 4 << 20
"""Some 8 days of one query."""
FILES_MAX = 200
FACTS, MINUTES = ".jsonl", ".minutes.jsonl"


class HistoryWriter:
    """Appends to the history of one query. Used by one thread.

    Nothing is made before the first fact. Raises OSError, also where the folder is gone: a
    checkpoint that somebody has removed is not made anew.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._folder = checkpoint / HISTORY
        self._writer = secrets.token_hex(4)
        self._facts = _Segments(self._folder, self._writer, FACTS, HISTORY_BYTES_MAX)
        self._minutes = _Segments(self._folder, self._writer, MINUTES, MINUTES_BYTES_MAX)

    def write(self, facts: Sequence[Fact], minutes: Sequence[Fact] = ()) -> None:
        """
        Raises:
            OSError: they could not be written, or not all of them.
        """
        if not self._folder.is_dir():
            if not self._checkpoint.is_dir():
                raise FileNotFoundError(f"the checkpoint {self._checkpoint} is gone")
            self._folder.mkdir(parents=True, exist_ok=True)
        self._facts.append(facts)
        self._minutes.append(minutes)


class _Segments:
    """The files of one writer and one kind, and the room that all writers' files of it share."""

    def __init__(self, folder: Path, writer: str, ending: str, bytes_max: int) -> None:
        self._folder = folder
        self._writer = writer
        self._ending = ending
        self._bytes_max = bytes_max
        self._path: Path | None = None

    def append(self, facts: Sequence[Fact]) -> None:
        if not facts:
            return
        data = "".join(f"{fact.to_line()}\n" for fact in facts).encode()
        with self._segment().open("ab") as file:
            file.write(data)

    def _segment(self) -> Path:
        path = self._path
        if path is None or not path.exists() or path.stat().st_size >= SEGMENT_BYTES_MAX:
            self._prune()
            path = self._folder / f"{time.time_ns() // 1_000_000}-{self._writer}{self._ending}"
            self._path = path
        return path

    def _prune(self) -> None:
        """Make room for one more segment; the oldest go, by the time in their names."""
        kept, size = 1, SEGMENT_BYTES_MAX
        for path in reversed(segments(self._folder, self._ending)):
            size += _size(path)
            kept += 1
            if size > self._bytes_max or kept > FILES_MAX:
                path.unlink(missing_ok=True)


def segments(folder: Path, ending: str = FACTS) -> list[Path]:
    """The files of one kind, oldest first."""
    found = [
        path
        for path in folder.glob(f"*{ending}")
        if path.name.endswith(MINUTES) == (ending == MINUTES) and _began_ms(path) is not None
    ]
    return sorted(found, key=lambda path: (_began_ms(path) or 0, path.name))


def _began_ms(path: Path) -> int | None:
    began, dash, _ = path.name.partition("-")
    return int(began) if dash and began.isdigit() else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # another writer made room
        return 0


def read_facts(checkpoint: Path, since_ms: int = 0, ending: str = FACTS) -> list[Fact]:
    """The facts from ``since_ms`` on, by time, of all writers; empty where there is no history.

    ``ending`` is ``FACTS`` or ``MINUTES``.

    Raises:
        OSError: the folder is there and may not be read.
    """
    found = [
        fact
        for path in segments(checkpoint / HISTORY, ending)
        if _written_since(path, since_ms)
        for fact in _facts_in(path)
        if fact.at_ms >= since_ms
    ]
    return sorted(found, key=lambda fact: fact.at_ms)


def _written_since(path: Path, since_ms: int) -> bool:
    try:
        return path.stat().st_mtime_ns // 1_000_000 >= since_ms - 1_000
    except FileNotFoundError:
        return False


def _facts_in(path: Path) -> Iterator[Fact]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from _whole(file)
    except FileNotFoundError:  # it was the oldest, and had to go
        return


def _whole(lines: Iterable[str]) -> Iterator[Fact]:
    for line in lines:
        fact = Fact.from_line(line)
        if fact is not None:
            yield fact
