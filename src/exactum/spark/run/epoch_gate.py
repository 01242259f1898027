"""The gate before every epoch of a run: while it is shut none begins, so that the query can be
stopped between two.

    shut --> Spark's next batch waits --> the last one is in Spark's commit log --> query.stop()

So nothing is in doubt when the query has stopped: the last epoch is complete, and the next start
begins with the batch that waited. Who may shut it: the supervisor, for the whole script, and a stop
request, for this query.
"""

from __future__ import annotations

import logging
import threading
import time

from exactum.errors import EpochAborted
from exactum.protocol.model import Completed
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.query import Run
from exactum.spark.write.write_job import CANCELLED

logger = logging.getLogger("exactum")

POLL_S = 0.02


class EpochGate(EpochListener):
    """Of one run; the first of its listeners. ``stopping`` is set for good when all queries of the
    process are to stop; ``completed`` is the batch that stands in every sink, the last of this run.
    """

    def __init__(self, run: Run, stopping: threading.Event) -> None:
        self._run = run
        self._stopping = stopping
        self.completed: int | None = None
        self._lock = threading.Lock()
        self._shut = False
        self._in_epoch = False
        self._done: tuple[int, float] | None = None  # batch id, and when it was done

    def shut(self) -> None:
        """From here on no epoch begins. Idempotent."""
        with self._lock:
            self._shut = True

    def open(self) -> None:
        """The query goes on, unless all are to stop. Idempotent."""
        with self._lock:
            self._shut = False

    def between_epochs(self, log_timeout_s: float) -> bool:
        """Whether no epoch is under way and Spark's commit log has the last one, or had
        ``log_timeout_s`` for it.
        """
        with self._lock:
            if self._in_epoch:
                return False
            done = self._done
        if done is None:
            return True
        batch_id, done_s = done
        if self._is_logged(batch_id):
            return True
        late = time.monotonic() - done_s > log_timeout_s
        if late:
            logger.warning(
                "%s: Spark has not logged batch %d as done; the next start drains it",
                self._run,
                batch_id,
            )
        return late

    def _is_logged(self, batch_id: int) -> bool:
        if self._run.read(f"commits/{batch_id}") is not None:
            return True
        # The function of the user may have returned from many batches since, without a call of
        # exactum: then Spark has removed it.
        last = self._run.last_logged_batch()
        return last is not None and last > batch_id

    def begin(self, batch: Batch) -> None:
        """See the base class. Waits while the gate is shut.

        Raises:
            EpochAborted: the query was stopped; nothing of the batch was written.
        """
        while True:
            with self._lock:
                if not self._shut and not self._stopping.is_set():
                    self._in_epoch = True
                    return
                self._done = None  # Spark asks for the next batch, so it has logged the last one
            if not self._run.still_runs():
                raise EpochAborted(CANCELLED)
            time.sleep(POLL_S)

    def done(self, batch: Batch, completed: Completed) -> None:
        """See the base class."""
        with self._lock:
            self._in_epoch, self._done = False, (batch.batch_id, time.monotonic())
            self.completed = batch.batch_id
