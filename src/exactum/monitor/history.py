"""The history of a query: facts in files beside its checkpoint, bounded, and written off the path.

    <checkpoint>/exactum/history/<began_ms>-<writer>.jsonl   facts, a line each

Each writer has files of its own, so a driver, its successor, a supervisor and a command never write
to one. A file that is full is followed by a new one, and the oldest go. Nothing is fsynced and
nothing is decided by it: what a crash or a full disk takes is missing from a picture, and from
nothing else.

Objects cannot be appended to: in an object store a file is put anew with what came since, every few
seconds, so files are smaller there.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from exactum.checkpoint import layout
from exactum.errors import ExactumError
from exactum.monitor.fact import Fact, cut
from exactum.storage.folder import Folder
from exactum.storage.storage import Entry, Storage

SEGMENT_BYTES_MAX = 1 << 20
OBJECT_BYTES_MAX = 1 << 16
HISTORY_BYTES_MAX = 16 << 20
FILES_MAX = 200
NOT_KEPT = frozenset({"EpochBegan", "EpochDecided"})
"""Facts of each epoch that say nothing once it is completed; the decision log has the decision."""
PROGRESS_EVERY_MS = 10_000
"""Reports of a fast query come twice in five seconds; one of them in this time is kept."""
LETTERS_MAX = 2_000
"""Longest text of a fact that is kept."""
PUT_EVERY_S = 5.0
AT_ONCE = frozenset(
    ("RunStarted", "RunEnded", "EpochAbandoned", "DecidedFinished", "OperatorFenced")
)
"""What is put into an object store as soon as it is heard: it may be the last that is."""


class HistoryWriter:
    """Appends to the history of one query. Used by one thread.

    Nothing is made before the first fact. Where the folder of a checkpoint is gone, that somebody
    has removed, it is not made anew.
    """

    def __init__(self, files: Storage) -> None:
        self._files = files
        self._writer = secrets.token_hex(4)
        self._name = ""
        self._began_ms = 0
        self._content = b""  # of an object
        self._put_s = float("-inf")
        self._waits = False

    def write(self, facts: Sequence[Fact]) -> None:
        """Without facts what waits is written, if it is time.

        Raises:
            OSError, Unavailable, SettingRefused: they could not be written, or not all of them.
        """
        data = "".join(f"{fact.to_line()}\n" for fact in facts).encode()
        if isinstance(self._files, Folder):
            if facts:
                self._append(Path(self._files.root), data)
        else:
            self._put(data, now=any(fact.name in AT_ONCE for fact in facts))

    def _append(self, checkpoint: Path, data: bytes) -> None:
        folder = checkpoint / layout.HISTORY
        if not folder.is_dir():
            if not checkpoint.is_dir():
                raise FileNotFoundError(f"the checkpoint {checkpoint} is gone")
            folder.mkdir(parents=True, exist_ok=True)
        path = checkpoint / self._name
        if not self._name or not path.exists() or path.stat().st_size >= SEGMENT_BYTES_MAX:
            path = checkpoint / self._next()
        with path.open("ab") as file:
            file.write(data)

    def _put(self, data: bytes, *, now: bool) -> None:
        if data and (not self._name or len(self._content) >= OBJECT_BYTES_MAX):
            if self._waits:
                self._files.put(self._name, self._content)
            self._next()
            self._content = b""
        self._content += data
        self._waits = self._waits or bool(data)
        if self._waits and (now or time.monotonic() - self._put_s >= PUT_EVERY_S):
            self._put_s, self._waits = time.monotonic(), False
            self._files.put(self._name, self._content)

    def _next(self) -> str:
        """Make room for one more file, the oldest go, by the time in their names; and name it."""
        kept, size = 1, SEGMENT_BYTES_MAX
        for segment in reversed(segments(self._files)):
            size += segment.size
            kept += 1
            if size > HISTORY_BYTES_MAX or kept > FILES_MAX:
                self._files.delete([f"{layout.HISTORY}/{segment.name}"])
        self._began_ms = max(time.time_ns() // 1_000_000, self._began_ms + 1)
        self._name = f"{layout.HISTORY}/{self._began_ms}-{self._writer}.jsonl"
        return self._name


def segments(files: Storage) -> list[Entry]:
    """The history's files in it, oldest first."""
    found = [entry for entry in files.entries(layout.HISTORY) if began_ms(entry.name) is not None]
    return sorted(found, key=lambda entry: (began_ms(entry.name) or 0, entry.name))


def began_ms(name: str) -> int | None:
    """When the file was begun; None where it is none of a history."""
    began, dash, rest = name.partition("-")
    return int(began) if dash and began.isdigit() and rest.endswith(".jsonl") else None


# ---- what a process hears of its queries -----------------------------------------------------


class HistoryOutlet:
    """Of the queries of a process. Those that it was not told of by ``begin`` are not written."""

    def __init__(self) -> None:
        self._queries: dict[str, _QueryHistory] = {}

    def begin(self, query_id: str, files: Storage) -> None:
        """From now on the query's facts go into this checkpoint."""
        known = self._queries.get(query_id)
        if known is None or known.files != files:
            self._queries = {**self._queries, query_id: _QueryHistory(files)}

    def take(self, facts: Sequence[Fact]) -> None:
        """Write facts, in the order in which they were heard; without some, what waits.

        Raises:
            OSError, ExactumError: of the first query that could not be written; the others are.
        """
        troubles: list[OSError | ExactumError] = []
        for query_id, history in self._queries.items():
            try:
                history.take([fact for fact in facts if fact.query_id == query_id])
            except (OSError, ExactumError) as error:
                troubles.append(error)
        if troubles:
            raise troubles[0]


class _QueryHistory:
    def __init__(self, files: Storage) -> None:
        self.files = files
        self._writer = HistoryWriter(files)
        self._progress_ms = 0

    def take(self, facts: Sequence[Fact]) -> None:
        kept: list[Fact] = []
        for fact in facts:
            if fact.name == "Progress":
                if fact.at_ms - self._progress_ms < PROGRESS_EVERY_MS:
                    continue
                self._progress_ms = fact.at_ms
            if fact.name not in NOT_KEPT:
                kept.append(Fact(fact.at_ms, fact.name, cut(dict(fact.fields), LETTERS_MAX)))
        self._writer.write(kept)
