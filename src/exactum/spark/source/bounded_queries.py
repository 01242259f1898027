"""Ends a query when everything before the stops of its sources is in the sinks, by what Spark's
checkpoint says.

Spark's streams have no end, and a query that finds nothing to read runs no batch in which anybody
could look. So a thread looks now and then, for any sink and any trigger. It ends with the session.
For the same reason it refuses what the stop guard refuses in a batch: a query whose checkpoint left
out rows before this stop has not read them.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from exactum.checkpoint.offset_log import folder_reader, local_folder, source_offsets
from exactum.checkpoint.partition_offsets import Offsets, from_json
from exactum.errors import CheckpointRefused
from exactum.spark.query import hadoop_reader
from exactum.spark.source.initial_offsets import initial_offsets
from exactum.spark.source.query_sources import RunningSource, sources_of_execution
from exactum.spark.source.record import SourceRecord
from exactum.spark.source.source_options import SourceOptions
from exactum.spark.source.stop_guard import refuse_lost
from exactum.spark.source.stop_position import reached

logger = logging.getLogger("exactum")

LOOK_EVERY_S = 0.5
SET_DEATH_CAUSE = "streamDeathCause_$eq"
"""The setter of what ``awaitTermination`` raises (Spark's StreamExecution.scala), as Scala names
it in Java.
"""
FAILURES_TOLD = 10
"""So many looks in a row that fail are no coincidence."""


_watchers: dict[Any, _Watcher] = {}
"""By Spark context. A frame may be started at any time while its session lasts, so a watcher
lasts as long.
"""
_registering = threading.Lock()


def watch(spark: SparkSession, source_id: str) -> None:
    """Look after every query that reads the source of this ``read_kafka``. Returns at once.

    One thread looks after all bounded sources of a Spark context.
    """
    context = spark.sparkContext
    with _registering:
        watcher = _watchers.get(context)
        if watcher is None:
            watcher = _watchers[context] = _Watcher(spark)
            threading.Thread(target=watcher.run, name="exactum-bounded", daemon=True).start()
        watcher.source_ids.add(source_id)


class _Watcher:
    """Looks at the active queries of one Spark context for its bounded sources."""

    def __init__(self, spark: SparkSession) -> None:
        self.source_ids: set[str] = set()
        self._spark: Any = spark
        self._context = spark.sparkContext
        self._sources: dict[
            str, tuple[RunningSource, ...]
        ] = {}  # by run id, once Spark has planned the query
        self._failures = 0  # looks in a row at which something failed

    def run(self) -> None:
        while self._session_runs():
            error = self._look()
            self._failures = 0 if error is None else self._failures + 1
            if error is not None:
                level = logging.WARNING if self._failures == FAILURES_TOLD else logging.DEBUG
                logger.log(
                    level, "bounded queries cannot be looked at, so they do not end: %r", error
                )
            time.sleep(LOOK_EVERY_S)
        with _registering:
            _watchers.pop(self._context, None)

    def _session_runs(self) -> bool:
        try:
            return not self._spark.sparkContext._jsc.sc().isStopped()
        except (AttributeError, Py4JError, OSError):  # stopped, and the JVM perhaps gone
            return False

    def _look(self) -> Exception | None:
        """Look at every query, whatever becomes of the others. A query may end while it is looked
        at.
        """
        failed: Exception | None = None
        try:
            active = list(
                self._spark._jsparkSession.sharedState().activeStreamingQueries().values()
            )
        except Exception as error:  # noqa: BLE001  (the next look tells)
            return error
        runs: set[str] = set()
        for execution in active:
            try:
                if execution is not None:  # else it has ended meanwhile
                    runs.add(self._look_at(execution))
            except Exception as error:  # noqa: BLE001  (likewise)
                failed = error
        self._sources = {
            run_id: sources for run_id, sources in self._sources.items() if run_id in runs
        }
        return failed

    def _look_at(self, execution: Any) -> str:
        """Look at one query; returns its run id."""
        run_id = str(execution.runId().toString())
        sources = self._sources.get(run_id) or sources_of_execution(execution)
        self._sources[run_id] = sources
        if any(SourceOptions.of(s.options).source_id in self.source_ids for s in sources):
            self._end_if_read(execution, sources)
        return run_id

    def _end_if_read(self, execution: Any, sources: tuple[RunningSource, ...]) -> None:
        root = str(execution.resolvedCheckpointRoot())
        folder = local_folder(root)
        positions = self._committed(execution, root, folder, sources)
        for source in sources:
            record = SourceRecord.of(folder, source)
            if record is not None:
                try:
                    refuse_lost(
                        f"query {execution.id().toString()}",
                        source,
                        record,
                        positions.get(source.index, {}),
                    )
                except CheckpointRefused as error:
                    self._fail(execution, error)
                    return
        for source in sources:
            stop = SourceOptions.of(source.options).stop
            if stop is None or not reached(stop, positions.get(source.index, {})):
                return
        logger.info(
            "query %s has read its sources up to their stops and ends", execution.id().toString()
        )
        execution.stop()

    def _fail(self, execution: Any, error: CheckpointRefused) -> None:
        """End the query with an error, as if a batch had raised it: Spark has no public way to do
        so from outside.
        """
        if execution.exception().isDefined():
            return  # a batch was refused meanwhile
        logger.error("%s", error)
        jvm = self._spark.sparkContext._jvm
        text = f"{type(error).__name__}: {error}"
        none = jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())
        cause = jvm.java.lang.IllegalStateException(text)
        died = jvm.org.apache.spark.sql.streaming.StreamingQueryException(
            text, cause, "STREAM_FAILED", none
        )
        getattr(execution, SET_DEATH_CAUSE)(died)
        execution.stop()

    def _committed(
        self, execution: Any, root: str, folder: Path | None, sources: tuple[RunningSource, ...]
    ) -> dict[int, Offsets]:
        """The next offsets of each source that are committed: the last epoch's ends, or where the
        query begins.
        """
        read = (
            folder_reader(folder)
            if folder is not None
            else hadoop_reader(self._spark.range(0), root)
        )
        last = execution.commitLog().getLatestBatchId()
        if last.isDefined():
            ends = source_offsets(read, int(last.get()), root).end
            return {index: from_json(text) for index, text in enumerate(ends)}
        return {source.index: initial_offsets(read, source) for source in sources}
