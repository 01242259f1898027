"""Aborting what late tasks of one run open when nothing else would sweep it."""

from __future__ import annotations

import time
from collections.abc import Callable

from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import Completed
from exactum.spark.epoch_listener import Batch, EpochListener

IDLE_SWEEPS_S = (2.0, 6.0, 15.0)
"""How long after a quiet stream's last epoch its leftovers are looked for. Spark kills the losers
of speculation within seconds of the winner's end."""
FAILED_SWEEPS_S = (1.0, 3.0)
"""How long after a failed query was found to have ended its leftovers are looked for: a worker
whose task Spark has cancelled may take its cut-off input for a whole one, and goes on until it
finds nobody there to tell of what it has prepared."""


class LateSweep(EpochListener):
    """The sweeps of one run besides those of its epochs."""

    every_s = 1.0
    trouble = "late leftovers could not be swept; the next epoch does it"

    def __init__(self, protocol: Coordinator) -> None:
        self._protocol = protocol
        self._done: tuple[int, float] | None = None  # the last batch's id, and when it was done
        self._sweeps = 0

    def done(self, batch: Batch, completed: Completed) -> None:
        """Another batch may not come for long."""
        self._done, self._sweeps = (batch.batch_id, time.monotonic()), 0

    def tend(self) -> None:
        """Sweep a few times after an epoch."""
        if self._done is None or self._sweeps == len(IDLE_SWEEPS_S):
            return
        batch_id, done_s = self._done
        if time.monotonic() - done_s >= IDLE_SWEEPS_S[self._sweeps]:
            self._sweeps += 1
            self._protocol.sweep_own(batch_id)

    def after_failure(self, is_closed: Callable[[], bool]) -> None:
        """Sweep for seconds what tasks of an abandoned epoch may still open, until the run is
        closed: a next start sweeps by itself.
        """
        if self._protocol.abandoned is None:
            return
        began_s = time.monotonic()
        for after_s in FAILED_SWEEPS_S:
            time.sleep(max(0.0, began_s + after_s - time.monotonic()))
            if not is_closed():
                self._protocol.sweep_own(self._protocol.abandoned)
