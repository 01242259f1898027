"""How long a process may be silent before it is taken for frozen."""

from __future__ import annotations

STANDBY_SILENT_S = 15.0
"""How long one that stands by may be silent: nothing waits for it. Longer where the one that runs
may be."""
DOUBLED_MAX = 10


class Patience:
    """Doubles with each process that was given up before it had shown that it gets anywhere: the
    next one may need a pause of the same length at the same place, and would be given up for ever.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._times = 0

    def lasts_s(self, *, got_somewhere: bool) -> float:
        """For a process that has, or has not."""
        return self._timeout_s * (1 if got_somewhere else 2 ** min(self._times, DOUBLED_MAX))

    def ran_out(self, *, got_somewhere: bool) -> None:
        """A process was given up."""
        self._times = 0 if got_somewhere else self._times + 1
