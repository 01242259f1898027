"""Ends a query when everything before the stops of its sources is in the sinks, by what Spark's
checkpoint says.

Spark's streams have no end, and a query that finds nothing to read runs no batch in which anybody
could look. So a thread looks now and then, for any sink and any trigger. It ends with the session.
For the same reason it refuses what the stop guard refuses in a batch: a query whose checkpoint left
out rows before this stop has not read them. It warns where such a stop is on no record, as of a
query whose batches went into another sink than exactum's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession

from exactum.checkpoint.offset_log import ReadText, folder_reader, local_folder, source_offsets
from exactum.checkpoint.partition_offsets import Offsets, as_argument, from_json, name_of
from exactum.errors import CheckpointRefused
from exactum.spark.jvm import virtual_machine
from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.hadoop_files import HadoopFiles
from exactum.spark.source.initial_offsets import initial_offsets
from exactum.spark.source.query_sources import RunningSource, sources_of_execution
from exactum.spark.source.source_options import SourceOptions
from exactum.spark.source.stop_guard import refuse_lost
from exactum.spark.source.stop_position import reached
from exactum.spark.source.stop_record import StopRecord

logger = logging.getLogger("exactum")

LOOK_EVERY_S = 0.5
FAILURES_TOLD = 10
"""So many looks in a row that fail are no coincidence."""
NEVER = -1
"""The batch before the first one."""


class BoundedQueries:
    """Ends the queries of this process that read bounded sources: one thread for each Spark
    context. Safe to use from threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A frame may be started at any time while its session lasts, so a watcher lasts as long.
        self._watchers: dict[Any, _Watcher] = {}  # by Spark context

    def watch(self, spark: SparkSession, source_id: str) -> None:
        """Look after every query that reads the source of this ``read_kafka``. Returns at once."""
        context = spark.sparkContext
        with self._lock:
            watcher = self._watchers.get(context)
            if watcher is None:
                watcher = self._watchers[context] = _Watcher(spark)
                work = (watcher, context)
                threading.Thread(
                    target=self._run, args=work, name="exactum-bounded", daemon=True
                ).start()
            watcher.source_ids.add(source_id)

    def _run(self, watcher: _Watcher, context: Any) -> None:
        watcher.run()
        with self._lock:
            self._watchers.pop(context, None)


bounded_queries = BoundedQueries()
"""Of this process: sources of one Spark context have nothing else in common."""


class _Watcher:
    """Looks at the active queries of one Spark context for its bounded sources."""

    def __init__(self, spark: SparkSession) -> None:
        self.source_ids: set[str] = set()
        self._spark = spark
        self._sources: dict[
            str, tuple[RunningSource, ...]
        ] = {}  # by run id, once Spark has planned the query
        self._kept_to: dict[str, int | None] = {}  # by run id: the batch at which it keeps to stops
        self._failures = 0  # looks in a row at which something failed

    def run(self) -> None:
        while virtual_machine.is_running(self._spark):
            error = self._look()
            self._failures = 0 if error is None else self._failures + 1
            if error is not None:
                level = logging.WARNING if self._failures == FAILURES_TOLD else logging.DEBUG
                logger.log(
                    level, "bounded queries cannot be looked at, so they do not end: %r", error
                )
            time.sleep(LOOK_EVERY_S)

    def _look(self) -> Exception | None:
        """Look at every query, whatever becomes of the others. A query may end while it is looked
        at.
        """
        failed: Exception | None = None
        try:
            active = Execution.active(self._spark)
        except Exception as error:  # noqa: BLE001  (the next look tells)
            return error
        runs: set[str] = set()
        for execution in active:
            try:
                runs.add(self._look_at(execution))
            except Exception as error:  # noqa: BLE001  (likewise)
                failed = error
        self._sources = {
            run_id: sources for run_id, sources in self._sources.items() if run_id in runs
        }
        self._kept_to = {run_id: last for run_id, last in self._kept_to.items() if run_id in runs}
        return failed

    def _look_at(self, execution: Execution) -> str:
        """Look at one query; returns its run id."""
        run_id = execution.run_id()
        sources = self._sources.get(run_id) or sources_of_execution(execution)
        self._sources[run_id] = sources
        if any(SourceOptions.of(s.options).source_id in self.source_ids for s in sources):
            self._end_if_read(execution, sources)
        return run_id

    def _end_if_read(self, execution: Execution, sources: tuple[RunningSource, ...]) -> None:
        root = execution.checkpoint()
        folder = local_folder(root)
        read = folder_reader(folder) if folder is not None else HadoopFiles(self._spark, root).read
        last = execution.last_logged_batch()
        positions = self._committed(read, root, last, sources)
        run_id = execution.run_id()
        if run_id not in self._kept_to or self._kept_to[run_id] != last:
            if not self._keep_to_stops(execution, sources, last, positions):
                return
            self._kept_to[run_id] = last
        for source in sources:
            stop = SourceOptions.of(source.options).stop
            if stop is None or not reached(stop, positions.get(source.index, {})):
                return
        self._warn_of_unrecorded(execution, sources, last, positions)
        logger.info(
            "query %s has read its sources up to their stops and ends", execution.query_id()
        )
        execution.stop()

    def _keep_to_stops(
        self,
        execution: Execution,
        sources: tuple[RunningSource, ...],
        last: int | None,
        positions: Mapping[int, Offsets],
    ) -> bool:
        """Fail the query where what lies past a stop on record would be lost, or nobody can read
        that record; False: it failed, or is over.
        """
        for source, record in self._records(execution, sources):
            its = positions.get(source.index, {})
            try:
                was = record.stop(NEVER if last is None else last)
                refuse_lost(f"query {execution.query_id()}", source, was, its)
            except CheckpointRefused as error:
                # Unless a batch was refused meanwhile.
                if execution.fail(self._spark, f"{type(error).__name__}: {error}"):
                    logger.error("%s", error)
                return False
        return True

    def _warn_of_unrecorded(
        self,
        execution: Execution,
        sources: tuple[RunningSource, ...],
        last: int | None,
        positions: Mapping[int, Offsets],
    ) -> None:
        for source, record in self._records(execution, sources):
            stop = SourceOptions.of(source.options).stop
            if stop is None:
                continue
            was = record.stop(NEVER if last is None else last)
            its = positions.get(source.index, {})
            past = [name_of(p) for p in sorted(its) if its[p] > stop.offsets.get(p, 0)]
            if past and (was is None or was.stop.offsets != stop.offsets):
                logger.warning(
                    "query %s: source %d was read past its stop (%s), those rows were left out, "
                    "and no later start can know: exactum wrote none of its batches, so the stop "
                    "is on no record. To read on, start a new query with a checkpointLocation of "
                    "its own and start=%s",
                    execution.query_id(),
                    source.index,
                    ", ".join(past),
                    as_argument(stop.offsets),
                )

    def _records(
        self, execution: Execution, sources: tuple[RunningSource, ...]
    ) -> Iterator[tuple[RunningSource, StopRecord]]:
        """Of the sources of which Spark keeps something in the checkpoint."""
        for source in sources:
            record = StopRecord.of(self._spark, execution.checkpoint(), source)
            if record is not None:
                yield source, record

    @staticmethod
    def _committed(
        read: ReadText, root: str, last: int | None, sources: tuple[RunningSource, ...]
    ) -> dict[int, Offsets]:
        """The next offsets of each source that are committed: the ends of ``last``, the last epoch,
        or where the query begins.
        """
        if last is not None:
            ends = source_offsets(read, last, root).end
            return {index: from_json(text) for index, text in enumerate(ends)}
        return {source.index: initial_offsets(read, source) for source in sources}
