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
from typing import Any

from exactum.checkpoint import layout
from exactum.monitor.fact import Fact

SEGMENT_BYTES_MAX = 1 << 20
HISTORY_BYTES_MAX = 16 << 20
FILES_MAX = 200
NOT_KEPT = frozenset({"EpochBegan", "EpochDecided"})
"""Facts of each epoch that say nothing once it is completed; the decision log has the decision."""
PROGRESS_EVERY_MS = 10_000
"""Reports of a fast query come twice in five seconds; one of them in this time is kept."""
LETTERS_MAX = 2_000
"""Longest text of a fact that is kept."""


class HistoryWriter:
    """Appends to the history of one query. Used by one thread.

    Nothing is made before the first fact. Raises OSError, also where the folder is gone: a
    checkpoint that somebody has removed is not made anew.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._folder = checkpoint / layout.HISTORY
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


# ---- what a process hears of its queries -----------------------------------------------------


class HistoryOutlet:
    """An outlet of a ``Recorder``. Queries that it was not told of by ``begin`` are not written."""

    def __init__(self) -> None:
        self._queries: dict[str, _QueryHistory] = {}

    def __str__(self) -> str:
        return "the history could not be written"

    def begin(self, query_id: str, checkpoint: Path) -> None:
        """From now on the query's facts go beside this checkpoint."""
        known = self._queries.get(query_id)
        if known is None or known.checkpoint != checkpoint:
            self._queries = {
                **self._queries,
                query_id: _QueryHistory(checkpoint),
            }

    def take(self, facts: Sequence[Fact]) -> None:
        """See ``recorder.Outlet``.

        Raises:
            OSError: of the first query that could not be written; the others are.
        """
        troubles: list[OSError] = []
        for query_id, history in self._queries.items():
            try:
                history.take([fact for fact in facts if fact.query_id == query_id])
            except OSError as error:
                troubles.append(error)
        if troubles:
            raise troubles[0]


class _QueryHistory:
    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self._writer = HistoryWriter(checkpoint)
        self._progress_ms = 0

    def take(self, facts: Sequence[Fact]) -> None:
        kept: list[Fact] = []
        for fact in facts:
            if fact.name == "Progress":
                if fact.at_ms - self._progress_ms < PROGRESS_EVERY_MS:
                    continue
                self._progress_ms = fact.at_ms
            if fact.name not in NOT_KEPT:
                kept.append(Fact(fact.at_ms, fact.name, _short(fact.fields)))
        self._writer.write(kept)


def _short(value: Any) -> Any:
    """A value of JSON without texts that fill a file."""
    if isinstance(value, str) and len(value) > LETTERS_MAX:
        return f"{value[:LETTERS_MAX]} [cut: {len(value) - LETTERS_MAX:,} more characters]"
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_short(one) for one in value]
    return value


HISTORY = HistoryOutlet()
"""Of this process."""
