"""What a person sees of ``exactum run``: lines on standard error with the time before them."""

from __future__ import annotations

import os
import select
import sys
import time

WAIT_S = 0.5
"""How long a line waits for a reader. Where one was in vain, the next ones do not wait."""
CLOSE_TIMEOUT_S = 2.0


class RunDisplay:
    """Entered while the supervisor works, and used by its thread.

    Who reads may be slow, stop reading, or be gone, and the disk that a log goes to may be full.
    The supervisor restarts its script all the same: what is not taken is counted, and said later.
    """

    def __init__(self) -> None:
        # Closed: its number may be another file's by now.
        self._fd = None if sys.__stderr__ is None else sys.__stderr__.fileno()
        self._encoding = "utf-8" if sys.__stderr__ is None else sys.__stderr__.encoding
        self._missed = 0

    def __enter__(self) -> RunDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self._say_what_is_missing(CLOSE_TIMEOUT_S)

    def say(self, text: str) -> None:
        """One line of the supervisor's own."""
        self._say_what_is_missing(0.0)
        if self._missed or not self._is_taken(text, WAIT_S):
            self._missed += 1

    def _say_what_is_missing(self, wait_s: float) -> None:
        text = f"{self._missed} lines are missing here: nobody read them"
        if self._missed and self._is_taken(text, wait_s):
            self._missed = 0

    def _is_taken(self, text: str, wait_s: float) -> bool:
        line = f"{time.strftime('%H:%M:%S')} exactum run: {text}\n"
        data = line.encode(self._encoding, "backslashreplace")
        while data and self._fd is not None:
            try:
                if not select.select([], [self._fd], [], wait_s)[1]:
                    return False
                # A pipe that can be written takes so much without waiting.
                data = data[os.write(self._fd, data[: select.PIPE_BUF]) :]
            except OSError:  # there is no other place for it
                return False
        return True
