"""Stops a query between two epochs when a file asks for it: what ``exactum savepoint create
--stop`` leaves.

    request seen --> gate shut --> between two epochs --> query.stop() --> answered

Whoever looks for requests keeps the run's file (``run_file``), too, and refuses to start from a
retired checkpoint.
"""

from __future__ import annotations

import logging
import math
import threading
import time

from pyspark import __version__ as spark_version

from exactum._version import __version__
from exactum.checkpoint import request_file, retirement
from exactum.checkpoint.request_file import Answer, Request
from exactum.checkpoint.run_file import RunFile
from exactum.errors import ExactumError
from exactum.spark.query import Run
from exactum.spark.run.epoch_gate import EpochGate
from exactum.storage.folder import Folder
from exactum.storage.storage import Storage

logger = logging.getLogger("exactum")

POLL_S = 0.02
EVERY_S = 0.5
EVERY_STORE_S = 5.0
"""Between two looks for a request: each is a listing, which an object store charges for."""


class StopRequest:
    """Its checkpoint is ``files``; ``gate`` is before its epochs."""

    trouble = "whether it is asked to stop is not known"

    def __init__(self, run: Run, files: Storage, gate: EpochGate) -> None:
        """
        Raises:
            CheckpointRefused: the checkpoint is retired.
        """
        retirement.refuse_retired(files)
        self._run = run
        self._gate = gate
        self._files = files
        self.every_s = EVERY_S if isinstance(files, Folder) else EVERY_STORE_S
        self._incarnation = str(run.incarnation)
        self._run_file = RunFile(files, self._incarnation, __version__, spark_version)
        self._lock = threading.Lock()
        self._request: Request | None = None
        self._stopping = False
        self._told: set[str] = set()
        self._closed = threading.Event()
        self._run_file.hold()

    def tend(self) -> None:
        """Take a request that is there."""
        with self._lock:
            if self._closed.is_set():
                return
            self._run_file.hold()  # where it could not be before
        self._look()

    def close(self) -> None:
        """Who is stopping the query lets go of the run's file: not before the last word is
        written.
        """
        with self._lock:
            self._closed.set()
            if not self._stopping:
                self._run_file.release()

    def _look(self) -> None:
        if self._request is not None:
            return
        request = request_file.find(self._files, self._incarnation, self._report_once)
        if request is None:
            return
        if not self._take(request):
            return
        try:
            request.answer(self._files, Answer(stopped=False, batch_id=self._gate.completed))
        except ExactumError as error:  # who asked would be told that the query goes on: so it does
            self._report_once(f"request {request.id} to stop cannot be answered ({error}): goes on")
            self._over(goes_on=True)
            return
        logger.info("%s: asked to stop after the epoch at hand (request %s)", self._run, request.id)
        # No daemon: a script that ends with its query must not take the last word with it.
        threading.Thread(
            target=self._stop, args=(request,), name="exactum-stop-request", daemon=False
        ).start()

    def _report_once(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.warning("%s: %s", self._run, what)

    def _take(self, request: Request) -> bool:
        """From here on no batch begins. False where another thread has taken a request just now."""
        with self._lock:
            first = self._request is None
            if first:
                self._request = request
                self._gate.shut()
            return first

    def _stop(self, request: Request) -> None:
        try:
            while True:
                is_between = self._gate.between_epochs(math.inf)
                if self._closed.is_set():
                    return
                if not request.stands(self._files):
                    logger.info(
                        "%s: request %s was taken back or is too old: goes on",
                        self._run,
                        request.id,
                    )
                    return
                if is_between:
                    break
                time.sleep(POLL_S)
            with self._lock:
                if self._closed.is_set():
                    return
                self._stopping = True
            self._run.live.stop()
            request.answer(self._files, Answer(stopped=True, batch_id=self._gate.completed))
        except Exception as error:  # noqa: BLE001  (the one who asked sees that the query goes on)
            logger.warning(
                "%s: could not be stopped as request %s asks: %s", self._run, request.id, error
            )
        finally:
            self._over(self._run.still_runs())

    def _over(self, goes_on: bool) -> None:
        with self._lock:
            self._stopping = False
            if goes_on:
                self._request = None
                self._gate.open()
            if self._closed.is_set() or not goes_on:
                self._run_file.release()
