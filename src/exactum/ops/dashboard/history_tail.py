"""Follows the history of a query: reads what was added since it was last asked, and no more."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from exactum.checkpoint.layout import HISTORY
from exactum.monitor.fact import Fact
from exactum.monitor.history import segments

READ_BYTES_MAX = 4 << 20
"""Of one file at a time. A segment is rolled at 1 MiB."""
HELD_MS = 1_000
"""Two processes write down what they saw up to half a second later. So long a fact waits for an
older one, so that facts come in order.
"""

Take = Callable[[Fact], None]


class HistoryTail:
    """Of one checkpoint. Used by one thread at a time.

    It remembers how far it has read in each file, and of what it read only the last second.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / HISTORY
        self._read: dict[str, int] = {}
        self._pending: list[tuple[int, float, Fact]] = []
        self.unreadable = 0
        """Lines that were no facts: half a line after a crash, a damaged disk."""

    def added(self, take: Take, now_ms: int) -> None:
        """Give ``take`` each fact that is new, in the order of their times.

        Raises:
            OSError: the folder is there and may not be read.
        """
        for path in self._changed():
            # What is older than a file is in no later one.
            self._give(take, _began_ms(path) - HELD_MS, float("-inf"))
            observed_s = time.monotonic()
            self._pending += [(fact.at_ms, observed_s, fact) for fact in self._facts_of(path)]
        self._give(take, now_ms - HELD_MS, time.monotonic() - HELD_MS / 1_000)

    def _give(self, take: Take, before_ms: int, observed_before_s: float) -> None:
        """Those from before that time, and those that have waited for so long."""
        self._pending.sort(key=lambda each: each[0])
        ready = 0
        for at_ms, observed_s, _ in self._pending:
            if at_ms > before_ms and observed_s > observed_before_s:
                break
            ready += 1
        facts, self._pending = self._pending[:ready], self._pending[ready:]
        for _, _, fact in facts:
            take(fact)

    def _changed(self) -> list[Path]:
        """The files in which there is something new, oldest first."""
        paths = segments(self._folder)
        known = {path.name for path in paths}
        for name in list(self._read):
            if name not in known:  # it made room for newer ones
                del self._read[name]
        return [path for path in paths if _size(path) != self._read.get(path.name, 0)]

    def _facts_of(self, path: Path) -> list[Fact]:
        begin = self._read.get(path.name, 0)
        try:
            with path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < begin:
                    begin = 0  # another file of that name
                file.seek(begin)
                data = file.read(READ_BYTES_MAX)
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) < READ_BYTES_MAX:
            return []  # its end is not written yet
        whole = data[: end or len(data)]
        self._read[path.name] = begin + len(whole)
        found = []
        for line in whole.splitlines():
            fact = _fact(line)
            if fact is None:
                self.unreadable += 1
            else:
                found.append(fact)
        return found


def _fact(line: bytes) -> Fact | None:
    try:
        return Fact.from_line(line.decode("utf-8", "replace"))
    except (OverflowError, RecursionError):  # no writer of ours wrote this
        return None


def _began_ms(path: Path) -> int:
    return int(path.name.partition("-")[0])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
