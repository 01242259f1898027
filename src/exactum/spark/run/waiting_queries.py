"""Notices a query that was started again and has found nothing to read yet.

Spark calls nothing in Python before a query's first batch, so onlookers would take such a query for
dead: nobody holds its run's file, and nothing is heard of it. A thread looks at Spark's active
queries now and then. It knows those that exactum has run before, by their checkpoints; one that has
never run has no decisions, no sinks on file, and is told of with its first batch.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark import __version__ as spark_version
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from exactum import events
from exactum._version import __version__
from exactum.checkpoint.known_sinks import read_known_sinks
from exactum.checkpoint.offset_log import local_folder
from exactum.checkpoint.run_file import WAITS_ENDING, RunFile
from exactum.protocol.model import new_incarnation
from exactum.spark.event_log import report_to_watchers
from exactum.spark.jvm.execution import Execution
from exactum.spark.run.history import keep_history, write_history

logger = logging.getLogger("exactum")

LOOK_EVERY_S = 2.0
TELL_EVERY_S = 10.0


@dataclass
class _Waiting:
    """A run of Spark's that waits, or has begun since. It has no file where it is not exactum's."""

    execution: Execution
    file: RunFile | None
    query_id: str
    incarnation: str
    checkpoint: str
    reported_s: float = float("-inf")


class WaitingQueries:
    """Of this process: see ``WAITING``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._runs: dict[str, _Waiting] = {}  # by Spark's run id
        self._begun: set[str] = set()

    def watch(self) -> None:
        """From now on, for as long as the process lives. Returns at once. Idempotent."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="exactum-waiting", daemon=True
                )
                self._thread.start()

    def begun(self, run_id: str) -> None:
        """This run of Spark's has come to its first batch, and tells of itself from here on."""
        with self._lock:
            self._begun.add(run_id)

    def _run(self) -> None:
        while True:
            time.sleep(LOOK_EVERY_S)
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  (an onlooker's trouble; a JVM that goes)
                logger.debug("waiting queries could not be looked at: %r", error)

    def _look(self) -> None:
        try:
            session = SparkSession.active()
            active = {each.run_id(): each for each in Execution.active(session)}
        except PySparkException:  # there is no session
            active = {}
        for run_id in [each for each in self._runs if each not in active]:
            self._over(run_id)
        for run_id, execution in active.items():
            if run_id not in self._runs:
                self._runs[run_id] = _found(execution, session)
            self._tell(run_id)
        with self._lock:
            self._begun &= active.keys()

    def _tell(self, run_id: str) -> None:
        run = self._runs[run_id]
        with self._lock:
            begun = run_id in self._begun
        if run.file is None or begun or time.monotonic() - run.reported_s < TELL_EVERY_S:
            return
        run.file.hold()
        run.reported_s = time.monotonic()
        report_to_watchers(
            events.QueryWaits(
                run.query_id,
                -1,
                run.incarnation,
                run_id,
                run.execution.name(),
                run.checkpoint,
                run.execution.doing(),
            )
        )

    def _over(self, run_id: str) -> None:
        run = self._runs.pop(run_id)
        with self._lock:
            begun = run_id in self._begun
        if run.file is None:
            return
        try:
            if not begun:
                failure = run.execution.failure()
                kind = "" if failure is None else "StreamingQueryException"
                report_to_watchers(
                    events.RunEnded(run.query_id, -1, run.incarnation, kind, "", failure or "")
                )
                write_history()
        finally:
            run.file.release()


WAITING = WaitingQueries()
"""This process's."""


def _found(execution: Execution, session: SparkSession) -> _Waiting:
    checkpoint, query_id = execution.checkpoint(), execution.query_id()
    folder, incarnation = local_folder(checkpoint), str(new_incarnation())
    ours = folder is not None and _has_run(folder, query_id)
    if folder is None or not ours:
        return _Waiting(execution, None, query_id, incarnation, checkpoint)
    keep_history(session, query_id, folder)
    file = RunFile(folder, incarnation, query_id, __version__, spark_version, ending=WAITS_ENDING)
    return _Waiting(execution, file, query_id, incarnation, checkpoint)


def _has_run(folder: Path, query_id: str) -> bool:
    try:
        known = read_known_sinks(folder)
    except (OSError, ValueError):
        return False
    return known is not None and known.query_id == query_id
