"""Takes a process's events off the path of its queries: a bounded queue, and one thread that hands
them on.

    a query's thread --hear--> queue --thread--> outlets (history, numbers, traces)

``hear`` never blocks and never raises. What the queue does not take is counted. An outlet that
fails is told of once a minute in the log, and misses what it was given.
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
"""How long the end of the process waits for what is in the queue."""


class Outlet(Protocol):
    """Where facts go. Called by one thread; may raise anything, and may take its time."""

    def take(self, facts: Sequence[Fact]) -> None:
        """Facts in the order in which they were heard; also none, twice a second, so that what has
        to be written by the clock is written.
        """


class Recorder:
    """One for each process: see ``RECORDER``. Safe to use from threads."""

    def __init__(self, queue_max: int = QUEUE_MAX) -> None:
        self._queue: queue.Queue[Fact] = queue.Queue(queue_max)
        self._outlets: list[Outlet] = []
        self._running: dict[str, Fact] = {}  # by query: how the run at hand began
        self._greetings: list[tuple[Outlet, Sequence[Fact]]] = []
        self._dropped = 0
        self._told_s: dict[int, float] = {}
        self._lock = threading.Lock()
        self._handing_on = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def dropped(self) -> int:
        """How many facts the queue did not take."""
        return self._dropped

    def hear(self, event: Event) -> None:
        """Take an event; it is handed on within half a second. Never blocks."""
        self.put(Fact.of(event, time.time_ns() // 1_000_000))

    def put(self, fact: Fact) -> None:
        """Take a fact. Never blocks."""
        self._note_run(fact)
        if not self._outlets:
            return
        try:
            self._queue.put_nowait(fact)
        except queue.Full:
            with self._lock:
                self._dropped += 1

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
        """From now on ``outlet`` gets every fact, after those that the runs at hand began with. The
        first one starts the thread. Idempotent.
        """
        with self._lock:
            if any(one is outlet for one in self._outlets):
                return
            self._outlets = [*self._outlets, outlet]
            self._greetings.append((outlet, [*self._running.values()]))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="exactum-recorder", daemon=True
                )
                self._thread.start()
                atexit.register(self.flush)

    def remove(self, outlet: Outlet) -> None:
        """It gets no more. Idempotent."""
        with self._lock:
            self._outlets = [one for one in self._outlets if one is not outlet]

    def flush(self, timeout_s: float = LAST_TIMEOUT_S) -> None:
        """Hand on what was heard until now, by the caller's thread, for as long as there is time
        to begin with an outlet.
        """
        if self._handing_on.acquire(timeout=timeout_s):
            try:
                self._hand_on()
            finally:
                self._handing_on.release()

    def _run(self) -> None:
        while True:
            time.sleep(HAND_ON_EVERY_S)
            with self._handing_on:
                self._hand_on()

    def _hand_on(self) -> None:
        facts: list[Fact] = []
        while len(facts) < QUEUE_MAX:
            try:
                facts.append(self._queue.get_nowait())
            except queue.Empty:
                break
        with self._lock:
            outlets, greetings, self._greetings = self._outlets, self._greetings, []
        for outlet, begun in greetings:
            self._give(outlet, begun)
        for outlet in outlets:
            self._give(outlet, facts)

    def _give(self, outlet: Outlet, facts: Sequence[Fact]) -> None:
        try:
            outlet.take(facts)
        except Exception as error:  # noqa: BLE001  (an onlooker's trouble is not the query's)
            self._warn(outlet, error)

    def _warn(self, outlet: Outlet, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s.get(id(outlet), float("-inf")) >= WARN_EVERY_S:
            self._told_s[id(outlet)] = now_s
            logger.warning(
                "%s: %s: %s. The queries go on; what it would have shown is missing.",
                outlet,
                type(error).__name__,
                error,
            )


RECORDER = Recorder()
"""This process's."""
