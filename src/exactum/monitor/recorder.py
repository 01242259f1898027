"""Takes a process's events off the path of its queries.

    a query's thread --observe--> numbers, and a bounded queue --a thread--> history

``observe`` never blocks and never raises. What the queue does not take is counted. A history that
cannot be written is told of once a minute in the log, and misses what it was given.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import time

from exactum.events import Event
from exactum.monitor.fact import Fact
from exactum.monitor.history import HistoryOutlet
from exactum.monitor.script_stats import ScriptStats
from exactum.storage.storage import Storage

logger = logging.getLogger("exactum")

QUEUE_MAX = 10_000
HAND_ON_EVERY_S = 0.5
WARN_EVERY_S = 60.0
LAST_TIMEOUT_S = 2.0
"""How long the end of the process waits for what is in the queue."""


class Recorder:
    """One for each process: see ``RECORDER``. Safe to use from threads.

    ``stats`` has all queries as numbers. ``dropped``: how many facts the queue did not take, or the
    history failed on.
    """

    def __init__(self, history: HistoryOutlet | None = None, queue_max: int = QUEUE_MAX) -> None:
        self.stats = ScriptStats()
        self.dropped = 0
        self._history = HistoryOutlet() if history is None else history
        self._queue: queue.Queue[Fact] = queue.Queue(queue_max)
        self._giving = threading.Lock()
        self._beginning = threading.Lock()
        self._writes = False
        self._warned_s = float("-inf")

    def begin(self, query_id: str, files: Storage) -> None:
        """From now on the query's facts go into the history of this checkpoint, too."""
        self._history.begin(query_id, files)
        with self._beginning:
            if not self._writes:
                self._writes = True
                threading.Thread(target=self._run, name="exactum-recorder", daemon=True).start()
                atexit.register(self.flush)

    def observe(self, event: Event) -> None:
        """Take an event; it is written within half a second. Never blocks."""
        self.put(Fact.of(event, time.time_ns() // 1_000_000))

    def put(self, fact: Fact) -> None:
        """Take a fact. Never blocks."""
        self.stats.observe(fact)
        if self._writes:
            try:
                self._queue.put_nowait(fact)
            except queue.Full:
                self.dropped += 1

    def flush(self, timeout_s: float = LAST_TIMEOUT_S) -> None:
        """Write what was heard until now, by the caller's thread, unless the history is busy for as
        long as this.
        """
        if self._giving.acquire(timeout=timeout_s):
            try:
                self._give()
            finally:
                self._giving.release()

    def _run(self) -> None:
        while True:
            time.sleep(HAND_ON_EVERY_S)
            with self._giving:
                self._give()

    def _give(self) -> None:
        """Also nothing, so that what has to be written by the clock is written."""
        facts: list[Fact] = []
        try:
            while len(facts) < QUEUE_MAX:
                facts.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        try:
            self._history.take(facts)
        except Exception as error:  # noqa: BLE001  (an onlooker's trouble is not the query's)
            self.dropped += len(facts)
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s - self._warned_s >= WARN_EVERY_S:
            self._warned_s = now_s
            logger.warning(
                "the history could not be written: %s: %s. The queries go on; what it would have "
                "shown is missing.",
                type(error).__name__,
                error,
            )


RECORDER = Recorder()
"""This process's."""
