"""What a person sees of ``exactum run``: lines on standard error with the time before them."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import sys
import threading
import time

LINES_MAX = 1_000
"""So many wait for a reader that does not read; more are counted and not kept."""
CLOSE_TIMEOUT_S = 2.0
"""How long the end waits for a reader that takes nothing."""


class RunDisplay:
    """Entered while the supervisor works.

    A thread of its own prints: who reads may be slow, stop reading, or be gone, and the disk that a
    log goes to may be full. The supervisor restarts its script all the same. It writes without the
    locks of ``sys.stderr``, so that a thread that hangs here does not hang the interpreter's end.
    """

    def __init__(self) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(LINES_MAX)
        self._missed = 0
        self._thread = threading.Thread(target=self._print, name="exactum-print", daemon=True)

    def __enter__(self) -> RunDisplay:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(queue.Full):
            if self._missed:
                self._lines.put(_missing(self._missed), timeout=CLOSE_TIMEOUT_S)
            self._lines.put(None, timeout=CLOSE_TIMEOUT_S)
            self._thread.join(CLOSE_TIMEOUT_S)

    def say(self, text: str) -> None:
        """One line of the supervisor's own. Never blocks."""
        try:
            if self._missed:
                self._lines.put_nowait(_missing(self._missed))
                self._missed = 0
            self._lines.put_nowait(_line(text))
        except queue.Full:
            self._missed += 1

    def _print(self) -> None:
        if sys.__stderr__ is None:  # closed: its number may be another file's by now
            return
        fd, encoding = sys.__stderr__.fileno(), sys.__stderr__.encoding
        while (line := self._lines.get()) is not None:
            data = line.encode(encoding, "backslashreplace")
            while data:
                try:
                    data = data[os.write(fd, data) :]
                except BlockingIOError:  # somebody who has it as well has set it so
                    select.select([], [fd], [])
                except OSError:  # what cannot be written is lost: there is no other place for it
                    break


def _line(text: str) -> str:
    return f"{time.strftime('%H:%M:%S')} exactum run: {text}\n"


def _missing(count: int) -> str:
    return _line(f"{count} lines are missing here: nobody read them")
