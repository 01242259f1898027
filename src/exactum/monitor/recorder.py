"""Takes a process's events off the path of its queries: a bounded queue and a thread for each
outlet.

    a query's thread --hear--> a queue for each outlet --its thread--> history, numbers, ...

``hear`` never blocks and never raises. What a queue does not take is counted. An outlet that fails
is told of once a minute in the log, and misses what it was given; one that hangs holds back nobody
but itself.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from exactum.events import Event
from exactum.monitor.fact import Fact

logger = logging.getLogger("exactum")

QUEUE_MAX = 10_000
RUNS_MAX = 200
"""Runs at hand whose begin is kept for outlets that come later."""
HAND_ON_EVERY_S = 0.5
WARN_EVERY_S = 60.0
LAST_TIMEOUT_S = 2.0
"""How long the end of the process waits for what is in the queues."""


class Outlet(Protocol):
    """Where facts go. Called by one thread; may raise anything, and may take its time."""

    def take(self, facts: Sequence[Fact]) -> None:
        """Facts in the order in which they were heard; also none, twice a second, so that what has
        to be written by the clock is written.
        """


class OutletQueue:
    """What one outlet has not been given yet, and the thread that gives it. Safe to use from
    threads.
    """

    def __init__(self, outlet: Outlet, begun: Sequence[Fact], queue_max: int) -> None:
        """``begun`` comes first: how the runs at hand began."""
        self.outlet = outlet
        self.dropped = 0
        self._begun = begun
        self._queue: queue.Queue[Fact] = queue.Queue(queue_max)
        self._giving = threading.Lock()
        self._warned_s = float("-inf")
        self._over = threading.Event()
        threading.Thread(target=self._run, name="exactum-recorder", daemon=True).start()

    def put(self, fact: Fact) -> None:
        """Never blocks."""
        try:
            self._queue.put_nowait(fact)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """What is left is given, and then no more."""
        self._over.set()

    def flush(self, timeout_s: float) -> None:
        """Give what was heard until now, by the caller's thread, unless the outlet is busy for as
        long as this.
        """
        if self._giving.acquire(timeout=max(0.0, timeout_s)):
            try:
                self._give()
            finally:
                self._giving.release()

    def _run(self) -> None:
        while not self._over.wait(HAND_ON_EVERY_S):
            with self._giving:
                self._give()

    def _give(self) -> None:
        facts = [*self._begun]
        self._begun = ()
        try:
            while len(facts) < QUEUE_MAX:
                facts.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        try:
            self.outlet.take(facts)
        except Exception as error:  # noqa: BLE001  (an onlooker's trouble is not the query's)
            self.dropped += len(facts)
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s - self._warned_s >= WARN_EVERY_S:
            self._warned_s = now_s
            logger.warning(
                "%s: %s: %s. The queries go on; what it would have shown is missing.",
                self.outlet,
                type(error).__name__,
                error,
            )


class Recorder:
    """One for each process: see ``RECORDER``. Safe to use from threads."""

    def __init__(self, queue_max: int = QUEUE_MAX) -> None:
        self._queue_max = queue_max
        self._queues: tuple[OutletQueue, ...] = ()
        self._running: dict[str, Fact] = {}  # by query: how the run at hand began
        self._dropped = 0  # by outlets that are gone
        self._lock = threading.Lock()
        self._flushes_at_exit = False

    @property
    def dropped(self) -> int:
        """How many facts an outlet's queue did not take, or the outlet failed on, of all outlets
        together.
        """
        return self._dropped + sum(each.dropped for each in self._queues)

    def observe(self, event: Event) -> None:
        """Take an event; it is handed on within half a second. Never blocks."""
        self.put(Fact.of(event, time.time_ns() // 1_000_000))

    def put(self, fact: Fact) -> None:
        """Take a fact. Never blocks."""
        self._note_run(fact)
        for each in self._queues:
            each.put(fact)

    def _note_run(self, fact: Fact) -> None:
        if fact.name == "RunStarted":
            with self._lock:
                self._running.pop(fact.query_id, None)
                if len(self._running) >= RUNS_MAX:
                    del self._running[next(iter(self._running))]
                self._running[fact.query_id] = fact
        elif fact.name == "RunEnded":
            with self._lock:
                known = self._running.get(fact.query_id)
                if known is not None and known.fields["incarnation"] == fact.fields["incarnation"]:
                    del self._running[fact.query_id]

    def add(self, outlet: Outlet) -> None:
        """From now on ``outlet`` gets every fact, after those that the runs at hand began with, by
        a thread of its own. Idempotent.
        """
        with self._lock:
            if any(each.outlet is outlet for each in self._queues):
                return
            begun = [*self._running.values()]
            self._queues = (*self._queues, OutletQueue(outlet, begun, self._queue_max))
            if not self._flushes_at_exit:
                self._flushes_at_exit = True
                atexit.register(self.flush)

    def remove(self, outlet: Outlet) -> None:
        """It gets no more. Idempotent."""
        with self._lock:
            gone = [each for each in self._queues if each.outlet is outlet]
            self._queues = tuple(each for each in self._queues if each.outlet is not outlet)
            self._dropped += sum(each.dropped for each in gone)
        for each in gone:
            each.close()

    def flush(self, timeout_s: float = LAST_TIMEOUT_S, only: Outlet | None = None) -> None:
        """Hand on what was heard until now, by the caller's thread; an outlet that is busy for so
        long is passed over. To all outlets, or one.
        """
        end_s = time.monotonic() + timeout_s
        for each in self._queues:
            if only in (None, each.outlet):
                each.flush(end_s - time.monotonic())


RECORDER = Recorder()
"""This process's."""
