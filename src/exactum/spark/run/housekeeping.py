"""The one thread that a run has besides Spark's: what is due now and then, and the run's end.

    duty, duty, ... duty, duty, ... --the query has ended--> late leftovers --> close

Spark calls nothing in Python when a query waits or stops, short of a listener, which would cost a
call from the JVM for each epoch.

Nothing waits for a duty but the duties after it. One that asks a server is bounded by the timeouts
of its client, and rests for twice as long as it took: a broker that does not answer has a third of
the thread at most. Who stops a query closes the clients, which ends what is asked of them.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

from exactum import events
from exactum.errors import CheckpointRefused
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import Completed
from exactum.protocol.sink import QueryRun
from exactum.spark.jvm.java_class import JvmError
from exactum.spark.query import Batch, EpochListener, Run
from exactum.spark.run.epoch_gate import EpochGate

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


class Attending:
    """Who serves a run besides its protocol: listeners, which are called with each batch, or with
    the run's first one, in their order, the gate first: where the query is to stop, nobody else
    begins the batch; the ``duties``; and what is closed with the run.
    """

    def __init__(self, gate: EpochGate) -> None:
        self.gate = gate
        self._each: list[EpochListener] = [gate]
        self._first: list[EpochListener] = []
        self.duties: list[Duty] = []
        self._closing = ExitStack()

    def attends(self, listener: EpochListener, *, first_alone: bool = False) -> None:
        """From here on it is called for each batch, or for the first one alone, and closed with the
        run.
        """
        (self._first if first_alone else self._each).append(listener)
        self.closes(listener.close)

    def stays(self, listener: EpochListener) -> None:
        """It was to be called for the first batch alone, and is called until it ``leaves``."""
        self._each = [*self._each, listener]

    def leaves(self, listener: EpochListener) -> None:
        self._each = [other for other in self._each if other is not listener]

    def of(self, batch: Batch) -> list[EpochListener]:
        """Who is called for this one."""
        return [*self._each, *self._first] if batch.first else self._each

    def closes(self, close: Callable[[], object]) -> None:
        """Close what is given later first."""
        self._closing.callback(close)

    def close(self) -> None:
        """Close all, each whatever becomes of the others; an error is raised at the end.
        Idempotent.
        """
        self._closing.close()


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


IDLE_SWEEPS_S = (2.0, 6.0, 15.0)
"""How long after a quiet stream's last epoch its leftovers are looked for. Spark kills the losers
of speculation within seconds of the winner's end."""
FAILED_SWEEPS_S = (1.0, 3.0)
"""How long after a failed query was found to have ended its leftovers are looked for: a worker
whose task Spark has cancelled may take its cut-off input for a whole one, and goes on until it
finds nobody there to tell of what it has prepared."""


PRUNED_WITHIN = 100
"""After so many batches at most old records are looked for."""


class Tidying(EpochListener):
    """Does between two epochs of a run what none of them has to wait for: aborts what late tasks
    open when nothing else would sweep it, and forgets the records of batches that Spark can no
    longer ask for. ``working`` is held while an epoch is under way.
    """

    every_s = 1.0
    trouble = "late leftovers could not be swept; the next epoch does it"

    def __init__(self, run: Run, protocol: Coordinator, working: threading.Lock) -> None:
        self._run = run
        self._protocol = protocol
        self._working = working
        self._done: tuple[int, float] | None = None  # the last batch's id, and when it was done
        self._sweeps = 0
        self._pruned: int | None = None
        self._closed = False

    def done(self, batch: Batch, completed: Completed) -> None:
        """Another batch may not come for long."""
        self._done, self._sweeps = (batch.batch_id, time.monotonic()), 0
        # A run that ends when it has read what is there may have no time later; another one may
        # never be found between two epochs.
        if self._pruned is None or batch.batch_id - self._pruned >= PRUNED_WITHIN:
            self._prune(batch.batch_id)

    def close(self) -> None:
        self._closed = True

    def tend(self) -> None:
        """Sweep a few times after an epoch."""
        if self._done is None or self._closed:
            return
        batch_id, done_s = self._done
        if self._pruned != batch_id and self._working.acquire(blocking=False):
            try:
                self._prune(batch_id)
            finally:
                self._working.release()
        if self._sweeps == len(IDLE_SWEEPS_S):
            return
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

    def _prune(self, batch_id: int) -> None:
        self._pruned = batch_id
        below = batch_id - self._run.retained - 1
        if below <= 0:
            return
        try:
            self._protocol.prune(below)
        except Exception as error:  # noqa: BLE001  (the epochs stand; what is kept too long harms nobody)
            logger.warning("%s: old decision records could not be pruned: %s", self._run, error)


class ProgressReports:
    """Emits ``Progress`` when Spark has a new report. Spark keeps its last one, and is asked for
    it: that costs one call into the JVM and no work within an epoch.
    """

    every_s = 2.0
    trouble = "what Spark reports of it is not known"

    def __init__(self, run: Run) -> None:
        self._run = run
        self._last = ""

    def tend(self) -> None:
        text = self._run.live.last_progress()
        if text is not None and text != self._last:
            self._last = text
            self._run.emit(progress_of(json.loads(text), self._run.identity))


def progress_of(report: Mapping[str, Any], run: QueryRun) -> events.Progress:
    """The event that says what ``report`` does: Spark's StreamingQueryProgress as JSON."""
    states = report.get("stateOperators") or ()
    return events.Progress(
        run.query_id,
        int(report["batchId"]),
        run.incarnation,
        input_rows=int(report.get("numInputRows") or 0),
        input_rows_per_s=_rate(report.get("inputRowsPerSecond")),
        processed_rows_per_s=_rate(report.get("processedRowsPerSecond")),
        state_rows=sum(int(s.get("numRowsTotal") or 0) for s in states) if states else None,
        state_bytes=sum(int(s.get("memoryUsedBytes") or 0) for s in states) if states else None,
        event_time_watermark=(report.get("eventTime") or {}).get("watermark"),
        phase_ms={name: float(ms) for name, ms in (report.get("durationMs") or {}).items()},
    )


def _rate(value: object) -> float:
    """Spark leaves a rate out, or says NaN or Infinity, where it has nothing to divide by."""
    rate = float(value) if isinstance(value, int | float | str) else 0.0
    return rate if math.isfinite(rate) else 0.0
