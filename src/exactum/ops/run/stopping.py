"""From a signal to the end of the script: its queries are asked to stop, then it gets SIGTERM, then
it is killed.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from exactum.ops.run.child import Child
from exactum.spark.supervised.supervisor_channel import KILL_AFTER_S


class Signals:
    """While entered, the signals that stop the command are only noted. For the main thread."""

    def __init__(self) -> None:
        self._noted: list[int] = []
        self._had_any = False
        self._before: Mapping[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
            numbers.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._note) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # A terminal that is closed may send several: only another signal is a second one.
        if number != signal.SIGHUP or not self._had_any:
            self._noted.append(number)
        self._had_any = True

    def taken(self) -> int:
        """How many have come since the last call."""
        count = len(self._noted)
        del self._noted[:count]
        return count


class Stopping:
    """``asked``: a signal has come. ``is_late``: the script did not stop in time."""

    def __init__(self, timeout_s: float, say: Callable[[str], None]) -> None:
        self._timeout_s = timeout_s
        self._say = say
        self._by_s = 0.0
        self._signalled = False  # SIGTERM was sent
        self.asked = False
        self.is_late = False

    def begin(self, now_s: float) -> bool:
        """A signal has come. False: it was not the first one, and nothing is waited for any
        more.
        """
        if self.asked:
            self._by_s = now_s
            return False
        self.asked = True
        self._by_s = now_s + self._timeout_s
        return True

    def ask(self, active: Child, now_s: float) -> None:
        """The queries of the one that runs are to stop after their epochs."""
        if active.joined:
            self._say(f"the queries stop after their epochs, within {self._timeout_s:g} s")
            active.ask_to_stop()
        else:
            self.terminate(active, "it has not begun", now_s)

    def look(self, active: Child | None, now_s: float) -> None:
        """What takes too long is ended."""
        if not self.asked or active is None or now_s < self._by_s:
            return
        self.is_late = True
        if self._signalled:
            self._say(f"process {active.pid} is killed with everything it has started")
            active.signal(signal.SIGKILL)
            self._by_s = now_s + KILL_AFTER_S
        else:
            self.terminate(active, "it has not stopped in time", now_s)

    def terminate(self, child: Child, why: str, now_s: float) -> None:
        """There is nothing to wait for: SIGTERM at once."""
        self._say(f"process {child.pid}: {why}; SIGTERM, and SIGKILL after {KILL_AFTER_S:g} s")
        child.signal(signal.SIGTERM)
        self._signalled = True
        self._by_s = now_s + KILL_AFTER_S
