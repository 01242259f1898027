"""Ends a query when everything before the stops of its sources is in the sinks, by what Spark's checkpoint says.

Spark's streams have no end, and a query that finds nothing to read runs no batch in which anybody could look. So a
thread looks now and then, for any sink and any trigger. It ends with the session. For the same reason it refuses what
the stop guard refuses in a batch: a query whose checkpoint left out rows before this stop has not read them.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from exactum.errors import CheckpointRefused
from exactum.spark.checkpoint import folder_reader, local_folder, source_offsets
from exactum.spark.query import hadoop_reader
from exactum.spark.source.initial_offsets import initial_offsets
from exactum.spark.source.notes import SourceNotes
from exactum.spark.source.partition_offsets import Offsets, from_json
from exactum.spark.source.query_sources import RunningSource, sources_of_execution
from exactum.spark.source.record import SourceRecord
from exactum.spark.source.stop_guard import refuse_lost
from exactum.spark.source.stop_position import reached

logger = logging.getLogger("exactum")

LOOK_EVERY_S = 0.5
SET_DEATH_CAUSE = "streamDeathCause_$eq"
"""The setter of what ``awaitTermination`` raises (Spark's StreamExecution.scala), as Scala names it in Java."""
FAILURES_TOLD = 10
"""So many looks in a row that fail are no coincidence."""


def watch(spark: SparkSession, source_id: str) -> None:
    """Look after every query that reads the source of this ``read_kafka``. Returns at once."""
    watcher = _Watcher(spark, source_id)
    threading.Thread(target=watcher.run, name="exactum-bounded", daemon=True).start()


class _Watcher:
    """Looks at the active queries of one session for one bounded source."""

    def __init__(self, spark: SparkSession, source_id: str) -> None:
        self._spark: Any = spark
        self._source_id = source_id
        self._sources: dict[str, tuple[RunningSource, ...]] = {}  # by run id, once Spark has planned the query

    def run(self) -> None:
        failures = 0
        while self._session_runs():
            try:
                self._look()
                failures = 0
            except Exception as error:  # noqa: BLE001  (a query may end while it is looked at; the next look tells)
                failures += 1
                level = logging.WARNING if failures == FAILURES_TOLD else logging.DEBUG
                logger.log(level, "bounded queries cannot be looked at, so they do not end: %r", error)
            time.sleep(LOOK_EVERY_S)

    def _session_runs(self) -> bool:
        try:
            return not self._spark.sparkContext._jsc.sc().isStopped()
        except (AttributeError, Py4JError, OSError):  # stopped, and the JVM perhaps gone
            return False

    def _look(self) -> None:
        active = self._spark._jsparkSession.sharedState().activeStreamingQueries()
        runs: set[str] = set()
        for execution in list(active.values()):
            if execution is None:  # ended meanwhile
                continue
            run_id = str(execution.runId().toString())
            runs.add(run_id)
            sources = self._sources.get(run_id) or sources_of_execution(execution)
            self._sources[run_id] = sources
            if any(SourceNotes.of(s.options).source_id == self._source_id for s in sources):
                self._end_if_read(execution, sources)
        self._sources = {run_id: sources for run_id, sources in self._sources.items() if run_id in runs}

    def _end_if_read(self, execution: Any, sources: tuple[RunningSource, ...]) -> None:
        root = str(execution.resolvedCheckpointRoot())
        folder = local_folder(root)
        positions = self._committed(execution, root, folder, sources)
        for source in sources:
            record = SourceRecord.of(folder, source)
            if record is not None:
                try:
                    refuse_lost(f"query {execution.id().toString()}", source, record, positions.get(source.index, {}))
                except CheckpointRefused as error:
                    self._fail(execution, error)
                    return
        for source in sources:
            stop = SourceNotes.of(source.options).stop
            if stop is None or not reached(stop, positions.get(source.index, {})):
                return
        logger.info("query %s has read its sources up to their stops and ends", execution.id().toString())
        execution.stop()

    def _fail(self, execution: Any, error: CheckpointRefused) -> None:
        """End the query with an error, as if a batch had raised it: Spark has no public way to do so from outside."""
        if execution.exception().isDefined():
            return  # a batch was refused meanwhile
        logger.error("%s", error)
        jvm = self._spark.sparkContext._jvm
        text = f"{type(error).__name__}: {error}"
        none = jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())
        cause = jvm.java.lang.IllegalStateException(text)
        died = jvm.org.apache.spark.sql.streaming.StreamingQueryException(text, cause, "STREAM_FAILED", none)
        getattr(execution, SET_DEATH_CAUSE)(died)
        execution.stop()

    def _committed(
        self, execution: Any, root: str, folder: Path | None, sources: tuple[RunningSource, ...]
    ) -> dict[int, Offsets]:
        """The next offsets of each source that are committed: the last epoch's ends, or where the query begins."""
        read = folder_reader(folder) if folder is not None else hadoop_reader(self._spark.range(0), root)
        last = execution.commitLog().getLatestBatchId()
        if last.isDefined():
            ends = source_offsets(read, int(last.get()), root).end
            return {index: from_json(text) for index, text in enumerate(ends)}
        return {source.index: initial_offsets(read, source) for source in sources}
