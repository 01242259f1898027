"""Ends a query when everything before the stops of its sources is in the sinks, by what Spark's
checkpoint says.

Spark's streams have no end, and a query that finds nothing to read runs no batch in which anybody
could look. So a thread looks now and then, for any sink and any trigger. It ends with the session.
For the same reason it refuses what the stop guard refuses in a batch: a query whose checkpoint left
out rows before this stop has not read them. It warns where such a stop is on no record, as of a
query whose batches went into another sink than exactum's.

A trigger may end a query as well, before its stop: what was there when it began is all that such a
query reads. That is told.
"""

from __future__ import annotations

import atexit
import logging
import threading
from typing import Any

from pyspark.sql import SparkSession

from exactum.spark.jvm import virtual_machine
from exactum.spark.jvm.execution import Execution
from exactum.spark.source.bounded_run import BoundedRun
from exactum.spark.source.query_sources import RunningSource, sources_of_execution
from exactum.spark.source.source_options import SourceOptions

logger = logging.getLogger("exactum")

LOOK_EVERY_S = 0.5
FAILURES_TOLD = 10
"""So many looks in a row that fail are no coincidence."""
LAST_LOOK_S = 5.0
"""For how long the end of the process waits for what is to be told."""


class BoundedQueries:
    """Ends the queries of this process that read bounded sources: one thread for each Spark
    context. Safe to use from threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A frame may be started at any time while its session lasts, so a watcher lasts as long.
        self._watchers: dict[Any, _Watcher] = {}  # by Spark context
        self._guarded: set[str] = set()
        self._ends_with_process = False

    def guarded(
        self, spark: SparkSession, execution: Execution, sources: tuple[RunningSource, ...]
    ) -> None:
        """This run of a query puts its stops on record with what it writes (``StopGuard``). It may
        be over before anybody looks.
        """
        run_id = execution.run_id()
        self._guarded.add(run_id)
        with self._lock:
            watcher = self._watchers.get(spark.sparkContext)
            if watcher is not None:
                watcher.bounded.setdefault(run_id, BoundedRun(spark, execution, sources))

    def watch(self, spark: SparkSession, source_id: str) -> None:
        """Look after every query that reads the source of this ``read_kafka``. Returns at once."""
        context = spark.sparkContext
        with self._lock:
            watcher = self._watchers.get(context)
            if watcher is None:
                watcher = self._watchers[context] = _Watcher(spark, self._guarded)
                work = (watcher, context)
                watcher.thread = threading.Thread(
                    target=self._run, args=work, name="exactum-bounded", daemon=True
                )
                watcher.thread.start()
            watcher.source_ids.add(source_id)
            if not self._ends_with_process:
                self._ends_with_process = True
                atexit.register(self._last_looks)

    def _run(self, watcher: _Watcher, context: Any) -> None:
        watcher.run()
        with self._lock:
            self._watchers.pop(context, None)

    def _last_looks(self) -> None:
        """A script may end as soon as its query does, and Spark with it."""
        with self._lock:
            watchers = list(self._watchers.values())
        for watcher in watchers:
            watcher.over.set()
        for watcher in watchers:
            watcher.thread.join(LAST_LOOK_S)


bounded_queries = BoundedQueries()
"""Of this process: sources of one Spark context have nothing else in common."""


class _Watcher:
    """Looks at the active queries of one Spark context for its bounded sources. ``guarded`` are ids
    of runs.
    """

    thread: threading.Thread

    def __init__(self, spark: SparkSession, guarded: set[str]) -> None:
        self.source_ids: set[str] = set()
        self.bounded: dict[str, BoundedRun] = {}  # by run id
        self.over = threading.Event()
        self._spark = spark
        self._guarded = guarded
        self._sources: dict[
            str, tuple[RunningSource, ...]
        ] = {}  # by run id, once Spark has planned the query
        self._failures = 0  # looks in a row at which something failed

    def run(self) -> None:
        while virtual_machine.is_running(self._spark) and not self.over.is_set():
            error = self._look()
            self._failures = 0 if error is None else self._failures + 1
            if error is not None:
                level = logging.WARNING if self._failures == FAILURES_TOLD else logging.DEBUG
                logger.log(
                    level, "bounded queries cannot be looked at, so they do not end: %r", error
                )
            self.over.wait(LOOK_EVERY_S)
        if virtual_machine.is_running(self._spark):
            self._look()
        else:
            self._tell_of_ended(set(self.bounded))

    def _look(self) -> Exception | None:
        """Look at every query, whatever becomes of the others. A query may end while it is looked
        at.
        """
        failed: Exception | None = None
        known = set(self.bounded)
        try:
            active = Execution.active(self._spark)
        except Exception as error:  # noqa: BLE001  (the next look tells)
            return error
        runs: set[str] = set()
        for execution in active:
            try:
                run_id = execution.run_id()
                runs.add(run_id)
                self._look_at(execution, run_id)
            except Exception as error:  # noqa: BLE001  (likewise)
                failed = error
        self._tell_of_ended(known - runs)
        self._sources = {
            run_id: sources for run_id, sources in self._sources.items() if run_id in runs
        }
        return failed

    def _look_at(self, execution: Execution, run_id: str) -> None:
        sources = self._sources.get(run_id) or sources_of_execution(execution)
        self._sources[run_id] = sources
        if any(SourceOptions.of(s.options).source_id in self.source_ids for s in sources):
            run = self.bounded.setdefault(run_id, BoundedRun(self._spark, execution, sources))
            run.end_if_read(lambda: run_id in self._guarded)

    def _tell_of_ended(self, ended: set[str]) -> None:
        for run_id in ended:
            run = self.bounded.pop(run_id)
            self._guarded.discard(run_id)
            try:
                run.tell_if_short()
            except Exception as error:  # noqa: BLE001  (the JVM may be gone)
                logger.debug("how far a bounded query came is not known: %r", error)
