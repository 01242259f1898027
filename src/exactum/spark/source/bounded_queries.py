"""Ends a query when everything before the stops of its sources is in the sinks.

No batch reads past a stop, but Spark's streams have no end, and a query that finds nothing to read
runs no batch in which anybody could look. So a thread looks now and then, for any sink and any
trigger, at how far Spark's checkpoint is. It ends with the Spark context.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from pyspark.sql import SparkSession

from exactum.checkpoint.offset_log import ReadText, folder_reader, local_folder, source_offsets
from exactum.checkpoint.partition_offsets import Offsets, from_json
from exactum.spark.jvm import virtual_machine
from exactum.spark.jvm.error import JvmError
from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.hadoop_files import HadoopFiles
from exactum.spark.source.query_sources import RunningSource, sources_of_run
from exactum.spark.source.source_options import SourceOptions

logger = logging.getLogger("exactum")

LOOK_EVERY_S = 0.5
WAITING = "Waiting"
"""How Spark's words begin for what a query does that has asked for offsets, and found none."""
FAILURES_TOLD = 10
"""So many looks in a row that fail are no coincidence."""


def end_bounded(spark: SparkSession) -> None:
    """From now on end the queries of this Spark context that have read up to their stops. Returns
    at once. Idempotent.
    """
    context = spark.sparkContext
    if not any(isinstance(t, _Watch) and t.context is context for t in threading.enumerate()):
        _Watch(spark).start()  # two that begin at once end the same queries, and harm nobody


class _Watch(threading.Thread):
    """Ends with its Spark context."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(name="exactum-bounded", daemon=True)
        self.context = spark.sparkContext
        self._spark = spark

    def run(self) -> None:
        runs: dict[str, _Run] = {}  # by Spark's run id
        while virtual_machine.is_running(self._spark):
            with suppress(JvmError, OSError):  # Spark is about to end
                active = {each.run_id(): each for each in Execution.active(self._spark)}
                runs = {i: runs.get(i) or _Run(self._spark, each) for i, each in active.items()}
            for run in runs.values():
                run.look()
            time.sleep(LOOK_EVERY_S)


class _Run:
    """One run of a query, bounded or not. For one thread."""

    def __init__(self, spark: SparkSession, execution: Execution) -> None:
        self._spark = spark
        self._execution = execution
        self._sources: tuple[RunningSource, ...] = ()  # until Spark has planned the query
        self._came: dict[int, Offsets] = {}
        self._next: int | None = None  # the batch from which on Spark's log is read
        self._failures = 0  # in a row

    def look(self) -> None:
        """Stop the query if each of its sources has a stop and is read up to it."""
        try:
            self._end_if_read()
            self._failures = 0
        except Exception as error:  # noqa: BLE001  (the next look tells: a query may end meanwhile)
            self._failures += 1
            level = logging.WARNING if self._failures == FAILURES_TOLD else logging.DEBUG
            logger.log(level, "a bounded query cannot be looked at, so it goes on: %r", error)

    def _end_if_read(self) -> None:
        if self._next is None:
            self._next = self._execution.last_logged_batch() or 0
        self._sources = self._sources or sources_of_run(self._execution)
        stops = [SourceOptions.of(source.options).stop for source in self._sources]
        if not stops or None in stops:
            return
        for index, positions in self._committed():
            # Spark forgets a topic that is gone; it was read as far as it was.
            self._came.setdefault(index, {}).update(positions)
        if self._execution.last_progress() is None and not self._execution.doing().startswith(
            WAITING
        ):  # it has not yet found that its topics are those of the checkpoint
            return
        for index, stop in enumerate(stops):
            came = self._came.get(index, {})
            if any(came.get(p, 0) < offset for p, offset in (stop or {}).items()):
                return
        logger.info(
            "query %s has read its sources up to their stops and ends", self._execution.query_id()
        )
        self._execution.stop()

    def _committed(self) -> Iterator[tuple[int, Offsets]]:
        """The next offsets of each source behind each batch that Spark has logged as done since it
        was looked at last: one may be the last that has a topic.
        """
        root, last = self._execution.checkpoint(), self._execution.last_logged_batch()
        folder = local_folder(root)
        read: ReadText = (
            folder_reader(folder) if folder is not None else HadoopFiles(self._spark, root).read
        )
        if last is None:
            for source in self._sources:
                yield source.index, source.initial_offsets(read)
            return
        for batch_id in range(self._next or 0, last + 1):
            for index, text in enumerate(source_offsets(read, batch_id, root).end):
                yield index, from_json(text)
        self._next = last + 1
