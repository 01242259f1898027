"""Printing by a thread of its own: who reads may be slow, stop reading, or be gone, and the disk
that a log goes to may be full. The supervisor restarts its script all the same.
"""

from __future__ import annotations

import logging
import os
import queue
import select
import sys
import threading
from collections.abc import Callable

logger = logging.getLogger("exactum")

ROOM = 100
"""Up to so many works in the queue there is room for more of what a script prints."""
WORKS_MAX = 1_000
"""From so many on, what may be missed is."""
PIECE_BYTES = 1 << 12
CLOSE_TIMEOUT_S = 2.0
"""How long the end waits for a reader who takes nothing."""


class ErrorStream:
    """Standard error, as a file for ``rich``. What cannot be written is lost: there is no other
    place to say so. Without locks, so that a thread that hangs here does not hang the interpreter's
    end.
    """

    def __init__(self) -> None:
        # Closed, its number may be another file's by now.
        self._fd = None if sys.__stderr__ is None else sys.__stderr__.fileno()
        self.encoding = "utf-8" if sys.__stderr__ is None else sys.__stderr__.encoding
        self.written_bytes = 0

    def isatty(self) -> bool:
        return self._fd is not None and os.isatty(self._fd)

    def fileno(self) -> int:
        return -1 if self._fd is None else self._fd

    def write(self, text: str) -> int:
        data = memoryview(text.encode(self.encoding, "backslashreplace"))
        while data and self._fd is not None:
            try:
                count = os.write(self._fd, data[:PIECE_BYTES])
            except BlockingIOError:  # somebody who has it as well has set it so
                select.select([], [self._fd], [])
                continue
            except OSError as error:
                logger.debug("standard error takes nothing: %s", error)
                break
            self.written_bytes += count
            data = data[count:]
        return len(text)

    def flush(self) -> None:
        """Nothing is kept."""


class Printer:
    """Does works one after another, none of which its caller waits for. ``progress`` grows while
    one goes on. ``missed`` is done with the number of works that were not taken.
    """

    def __init__(self, progress: Callable[[], int], missed: Callable[[int], object]) -> None:
        self._progress = progress
        self._tell_missed = missed
        self._works: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self._done = 0
        self._missed = 0
        self._thread = threading.Thread(target=self._run, name="exactum-print", daemon=True)
        self._thread.start()

    @property
    def has_room(self) -> bool:
        return self._works.qsize() < ROOM

    def add(self, work: Callable[[], object]) -> None:
        """Whatever waits already: for those who ask first whether there is room."""
        self._works.put(work)

    def add_or_miss(self, work: Callable[[], object]) -> None:
        """Where too many wait already, it is only counted."""
        if self._works.qsize() >= WORKS_MAX:
            self._missed += 1
            return
        self._add_missed()
        self.add(work)

    def _add_missed(self) -> None:
        count, self._missed = self._missed, 0
        if count:
            self.add(lambda: self._tell_missed(count))

    def close(self) -> None:
        """Return when all is done, or nothing goes on any more."""
        self._add_missed()
        self._works.put(None)
        before = -1
        while before != (before := self._done + self._progress()):
            self._thread.join(CLOSE_TIMEOUT_S)
            if not self._thread.is_alive():
                return

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            try:
                work()
            except Exception as error:  # noqa: BLE001  (what is printed is no reason to stop, and could not be printed)
                logger.debug("not printed: %s: %s", type(error).__name__, error)
            self._done += 1
