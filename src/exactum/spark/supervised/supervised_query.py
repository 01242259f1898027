"""Tells the supervisor which batch a run is at, and stops the run between two epochs when it asks
for that.
"""

from __future__ import annotations

import logging
import threading
import time

from exactum.protocol.epoch_protocol import Completed
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.run_context import RunContext
from exactum.spark.supervised import stopping
from exactum.spark.supervised.process import SupervisedProcess

logger = logging.getLogger("exactum")

COMMIT_LOG_TIMEOUT_S = 10.0
"""How long Spark may take to log an epoch that is done, before the query is stopped all the
same.
"""


class SupervisedQuery(EpochListener):
    """One run of a query in a supervised script."""

    def __init__(self, life: SupervisedProcess, context: RunContext) -> None:
        self._life = life
        self._running = context.query
        self._read = context.read
        self._lock = threading.Lock()
        self._in_epoch = False
        self._done: tuple[int, float] | None = None  # batch id, and when it was done

    @property
    def run_id(self) -> str:
        return self._running.run_id

    def between_epochs(self) -> bool:
        """Whether no epoch is under way and Spark's commit log has the last one."""
        with self._lock:
            if self._in_epoch:
                return False
            done = self._done
        if done is None:
            return True
        batch_id, done_s = done
        late = time.monotonic() - done_s > COMMIT_LOG_TIMEOUT_S
        if late:
            logger.warning(
                "%s: Spark has not logged batch %d as done; the next start drains it",
                self._running,
                batch_id,
            )
        return late or self._read(f"commits/{batch_id}") is not None

    def begin(self, batch: Batch) -> None:
        """See the base class. Does not return where the query is to be stopped."""
        if batch.first:
            stopping.enter(self)
        with self._lock:
            held = self._life.stopping.is_set()
            self._in_epoch = not held
            if held:
                self._done = None  # Spark asks for the next batch, so it has logged the last one
        if held:
            stopping.hold(self._running.still_runs)
        self._life.tell("batch", query_id=self._running.query_id, batch_id=batch.batch_id)

    def done(self, batch: Batch, completed: Completed) -> None:
        """See the base class."""
        with self._lock:
            self._in_epoch, self._done = False, (batch.batch_id, time.monotonic())

    def close(self) -> None:
        """See the base class."""
        stopping.leave(self)
