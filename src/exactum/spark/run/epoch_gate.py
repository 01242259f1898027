"""The gate before every epoch of a run: while it is shut none begins, so that the query can be
stopped between two.

    shut --> Spark's next batch waits --> the last one is in Spark's commit log --> query.stop()
    request seen --> shut --> ... --> query.stop() --> the run's last word

So nothing is in doubt when the query has stopped: the last epoch is complete, and the next start
begins with the batch that waited. Who may shut it: the supervisor, for the whole script, and a stop
request, for this query.
"""

from __future__ import annotations

import logging
import math
import threading
import time

from pyspark import __version__ as spark_version

from exactum._version import __version__
from exactum.checkpoint import retirement
from exactum.checkpoint.request_file import Requests
from exactum.checkpoint.run_file import RunFile
from exactum.errors import EpochAborted
from exactum.protocol.model import Completed
from exactum.spark.open_queries import open_queries
from exactum.spark.query import Batch, EpochListener, Run
from exactum.spark.write.write_job import CANCELLED
from exactum.storage.folder import Folder
from exactum.storage.storage import Storage

logger = logging.getLogger("exactum")

POLL_S = 0.02
EVERY_S = 0.5
EVERY_STORE_S = 5.0
"""Between two looks for a request: an object store charges for each."""


class EpochGate(EpochListener):
    """Of one run; the first of its listeners. ``completed`` is the batch that stands in every sink,
    the last of this run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
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
        last = self._run.last_logged_batch()
        return last is not None and last >= batch_id

    def begin(self, batch: Batch) -> None:
        """See the base class. Waits while the gate is shut.

        Raises:
            EpochAborted: the query was stopped; nothing of the batch was written.
        """
        while True:
            with self._lock:
                if not self._shut and not open_queries.stopping.is_set():
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


class StopRequest:
    """Stops a query when a file asks for it: what ``exactum savepoint create --stop`` leaves. It
    keeps the run's file (``run_file``), too, and refuses to start from a retired checkpoint.

    Its checkpoint is ``files``; ``gate`` is before its epochs. ``tend`` is called by one thread.
    """

    trouble = "whether it is asked to stop is not known"

    def __init__(self, run: Run, files: Storage, gate: EpochGate) -> None:
        """
        Raises:
            CheckpointRefused: the checkpoint is retired.
        """
        retirement.refuse_retired(files)
        self._run = run
        self._gate = gate
        self._requests = Requests(files, str(run.incarnation))
        self._every_s = EVERY_S if isinstance(files, Folder) else EVERY_STORE_S
        self._run_file = RunFile(files, str(run.incarnation), __version__, spark_version)
        self._lock = threading.Lock()
        self._asked = False
        self._stopping = False
        self._closed = threading.Event()
        self._run_file.hold()

    @property
    def every_s(self) -> float:
        """See ``Duty``; soon, while somebody waits for the stop."""
        return 0.0 if self._asked else self._every_s

    def tend(self) -> None:
        """Once it is asked no batch begins. Then stop the query, when it is between two."""
        with self._lock:
            if self._closed.is_set() or self._stopping:
                return
            self._run_file.hold()  # where it could not be before
        if not self._requests.is_valid():
            if self._asked:
                logger.info("%s: the request to stop was taken back or is too old", self._run)
                self._over(goes_on=True)
        elif not self._asked:
            self._asked = True
            self._gate.shut()
            logger.info("%s: asked to stop after the epoch at hand", self._run)
        elif self._gate.between_epochs(math.inf) and self._requests.stops():
            with self._lock:
                if self._closed.is_set():
                    return
                self._stopping = True
            # No daemon: a script that ends with its query must not take the last word with it.
            name = "exactum-stop-request"
            threading.Thread(target=self._stop, name=name, daemon=False).start()

    def close(self) -> None:
        """Who is stopping the query lets go of the run's file, with the last word."""
        with self._lock:
            self._closed.set()
            if not self._stopping:
                self._run_file.release()

    def _stop(self) -> None:
        try:
            self._run.live.stop()
        except Exception as error:  # noqa: BLE001  (the one who asked sees that the query goes on)
            logger.warning("%s: could not be stopped as it is asked: %s", self._run, error)
        finally:
            self._over(self._run.still_runs())

    def _over(self, goes_on: bool) -> None:
        with self._lock:
            self._stopping = False
            if goes_on:
                self._asked = False
                self._gate.open()
            else:  # no epoch has begun since it was between two
                self._closed.set()
            if self._closed.is_set():
                self._run_file.release(None if goes_on else self._gate.completed)
