"""The one thread that a run has besides Spark's: what is due now and then, and the run's end.

    duty, duty, ... duty, duty, ... --the query has ended--> late leftovers --> close

Spark calls nothing in Python when a query waits or stops, short of a listener, which would cost a
call from the JVM for each epoch.

Nothing waits for a duty but the duties after it. One that asks a server is bounded by the timeouts
of its client, and rests for twice as long as it took: a broker that does not answer has a third of
the thread at most. Who stops a query closes the clients, which ends what is asked of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from exactum.errors import CheckpointRefused
from exactum.spark.jvm.error import JvmError
from exactum.spark.query import Run

logger = logging.getLogger("exactum")

TICK_S = 0.5
REST = 2.0
"""How often as long as it took a duty rests."""


class Duty(Protocol):
    """Something that is done now and then while a run lasts, whether it has batches or not."""

    @property
    def every_s(self) -> float:
        """How much time is between two calls, at least."""

    @property
    def trouble(self) -> str:
        """What a failure means, for the log."""

    def tend(self) -> None:
        """
        Raises:
            CheckpointRefused: no other batch may be run. The query ends with it.
            Exception: is logged, and stops neither the query nor the other duties.
        """


class Housekeeping:
    """Of one run. ``refused`` is called with what would refuse the next batch: a quiet query may
    not have another for days. ``ended`` is called soon after the query's end, then ``close``
    (idempotent).
    """

    def __init__(
        self,
        run: Run,
        duties: Sequence[Duty],
        *,
        refused: Callable[[CheckpointRefused], None],
        ended: Callable[[], None],
        close: Callable[[], None],
    ) -> None:
        self._run = run
        self._duties = tuple(duties)
        self._refused = refused
        self._ended = ended
        self._close = close
        self._due_s = [0.0] * len(self._duties)
        self._failing: set[Duty] = set()

    def start(self) -> None:
        """Returns at once. The thread is a daemon, and ends with the run."""
        threading.Thread(target=self._work, name="exactum-housekeeping", daemon=True).start()

    def _work(self) -> None:
        while self._is_on():
            for place, duty in enumerate(self._duties):
                began_s = time.monotonic()
                if began_s >= self._due_s[place]:
                    self._tend(duty)
                    took_s = time.monotonic() - began_s
                    self._due_s[place] = began_s + max(duty.every_s, took_s * (1 + REST))
            time.sleep(TICK_S)
        for last, trouble in (
            (self._ended, "late leftovers could not be swept; the next start does it"),
            (self._close, "a connection could not be closed"),
        ):
            try:
                last()
            except Exception as error:  # noqa: BLE001  (nobody is left to raise it to)
                logger.warning("%s: %s: %s", self._run, trouble, error)

    def _tend(self, duty: Duty) -> None:
        try:
            try:
                duty.tend()
                self._failing.discard(duty)
            except CheckpointRefused as error:
                self._refused(error)
        except Exception as error:  # noqa: BLE001  (the others go on)
            if self._is_on() and duty not in self._failing:
                self._failing.add(duty)
                logger.warning("%s: %s: %s", self._run, duty.trouble, error)

    def _is_on(self) -> bool:
        try:
            return self._run.still_runs()
        except (JvmError, OSError):  # the JVM is gone, and the query with it
            return False
