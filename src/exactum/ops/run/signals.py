"""Signals as something to wait for together with sockets, instead of something that interrupts."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from types import FrameType
from typing import Any

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)


class Signals:
    """While entered, signals only wake who waits for ``reader`` and are read by ``taken``. For the
    main thread.
    """

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        for end in (self.reader, self._writer):
            os.set_blocking(end, False)
        self._before: Mapping[signal.Signals, Any] = {}
        self._wakeup_before = -1

    def __enter__(self) -> Signals:
        self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _nothing) for number in WATCHED}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self.reader)
        os.close(self._writer)

    def taken(self) -> list[int]:
        """The signals since the last call."""
        try:
            return list(os.read(self.reader, 1024))
        except BlockingIOError:
            return []


def _nothing(number: int, frame: FrameType | None) -> None:
    """The signal's number is in the pipe."""
