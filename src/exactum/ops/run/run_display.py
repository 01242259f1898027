"""What a person sees of ``exactum run``: lines on standard error with the time before them."""

from __future__ import annotations

import os
import select
import sys
import time

WAIT_S = 0.5
"""How long a line waits for a reader. Where one was in vain, the next ones do not wait."""


class RunDisplay:
    """Used by the supervisor's thread.

    Who reads may be slow, stop reading, or be gone, and the disk that a log goes to may be full.
    The supervisor restarts its script all the same: what is not taken is lost.
    """

    def __init__(self) -> None:
        # Closed: its number may be another file's by now.
        self._fd = None if sys.__stderr__ is None else sys.__stderr__.fileno()
        self._encoding = "utf-8" if sys.__stderr__ is None else sys.__stderr__.encoding
        self._wait_s = WAIT_S

    def say(self, text: str) -> None:
        """One line of the supervisor's own."""
        line = f"{time.strftime('%H:%M:%S')} exactum run: {text}\n"
        data = line.encode(self._encoding, "backslashreplace")
        while data and self._fd is not None:
            try:
                if not select.select([], [self._fd], [], self._wait_s)[1]:
                    self._wait_s = 0.0
                    return
                # A pipe that can be written takes so much without waiting.
                data = data[os.write(self._fd, data[: select.PIPE_BUF]) :]
            except OSError:  # there is no other place for it
                return
        self._wait_s = WAIT_S
