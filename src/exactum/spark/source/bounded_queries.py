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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

from exactum.checkpoint.offset_log import ReadText, folder_reader, local_folder, source_offsets
from exactum.checkpoint.partition_offsets import Offsets, as_argument, from_json, name_of
from exactum.errors import CheckpointRefused
from exactum.spark.jvm import virtual_machine
from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.hadoop_files import HadoopFiles
from exactum.spark.query import ENDING_TRIGGERS
from exactum.spark.source.initial_offsets import initial_offsets
from exactum.spark.source.query_sources import RunningSource, sources_of_execution
from exactum.spark.source.record import SourceRecord
from exactum.spark.source.source_options import SourceOptions, Stop
from exactum.spark.source.stop_guard import kept_from, refuse_lost
from exactum.spark.source.stop_position import reached
from exactum.spark.source.stop_record import StopRecord

logger = logging.getLogger("exactum")

LOOK_EVERY_S = 0.5
FAILURES_TOLD = 10
"""So many looks in a row that fail are no coincidence."""
NEVER = -1
"""The batch before the first one."""
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
                watcher.bounded[run_id] = execution, sources

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
        self.bounded: dict[str, tuple[Execution, tuple[RunningSource, ...]]] = {}  # by run id
        self.over = threading.Event()
        self._spark = spark
        self._guarded = guarded
        self._first_batch: dict[str, int] = {}  # by run id: no later than this one was its first
        self._sources: dict[
            str, tuple[RunningSource, ...]
        ] = {}  # by run id, once Spark has planned the query
        self._kept_to: dict[str, int | None] = {}  # by run id: the batch at which it keeps to stops
        self._came: dict[str, dict[int, Offsets]] = {}  # by run id and index of the source
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
        self._kept_to = {run_id: last for run_id, last in self._kept_to.items() if run_id in runs}
        return failed

    def _look_at(self, execution: Execution, run_id: str) -> None:
        sources = self._sources.get(run_id) or sources_of_execution(execution)
        self._sources[run_id] = sources
        if any(SourceOptions.of(s.options).source_id in self.source_ids for s in sources):
            self.bounded[run_id] = execution, sources
            self._end_if_read(execution, run_id, sources)

    def _end_if_read(
        self, execution: Execution, run_id: str, sources: tuple[RunningSource, ...]
    ) -> None:
        last = execution.last_logged_batch()
        self._first_batch.setdefault(run_id, (NEVER if last is None else last) + 1)
        positions = self._committed(execution, last, sources)
        if run_id not in self._kept_to or self._kept_to[run_id] != last:
            if not self._keep_to_stops(execution, sources, last, positions):
                return
            self._kept_to[run_id] = last
        came = self._came_to(execution, run_id, last, sources, positions=positions)
        for source in sources:
            stop = SourceOptions.of(source.options).stop
            if stop is None:
                return
            its = came[source.index]
            if not reached(stop, its):
                gone = self._gone(execution, source, positions.get(source.index, {}), its)
                if not reached(stop, its | {p: stop.offsets.get(p, 0) for p in gone}):
                    return
        logger.info(
            "query %s has read its sources up to their stops and ends", execution.query_id()
        )
        execution.stop()
        if run_id not in self._guarded and last is not None:
            self._warn_of_unrecorded(execution, sources, last, positions)

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
        last: int,
        positions: Mapping[int, Offsets],
    ) -> None:
        """Warn of what this run has read past its stops. Its query is over: nothing comes after."""
        first = self._first(execution, execution.run_id())
        if first > last:
            return
        begins = self._begins(execution, first, sources)
        for source, record in self._records(execution, sources):
            stop = SourceOptions.of(source.options).stop
            if stop is None:
                continue
            its = positions.get(source.index, {})
            kept = kept_from(stop, record.stop(last), begins.get(source.index, {}))
            rest = {p: min(kept.left_out_from.get(p, 0), offset) for p, offset in its.items()}
            past = [name_of(p) for p in sorted(its) if its[p] > rest[p]]
            if past:
                logger.warning(
                    "query %s: source %d was read past its stop (%s), those rows were left out, "
                    "and no later start can know: exactum did not write its batches, so the stop "
                    "is on no record. To read on, start a new query with a checkpointLocation of "
                    "its own and start=%s",
                    execution.query_id(),
                    source.index,
                    ", ".join(past),
                    as_argument(rest),
                )

    def _tell_of_ended(self, ended: set[str]) -> None:
        for run_id in ended:
            execution, sources = self.bounded.pop(run_id)
            self._guarded.discard(run_id)
            try:
                self._tell_if_short(execution, run_id, sources)
            except Exception as error:  # noqa: BLE001  (the JVM may be gone)
                logger.debug("how far a bounded query came is not known: %r", error)
            self._first_batch.pop(run_id, None)
            self._came.pop(run_id, None)

    def _tell_if_short(
        self, execution: Execution, run_id: str, sources: tuple[RunningSource, ...]
    ) -> None:
        if execution.failure() is not None:
            return
        trigger, last = execution.trigger(), execution.last_logged_batch()
        self._first_batch.setdefault(run_id, (NEVER if last is None else last) + 1)
        positions = self._committed(execution, last, sources)
        came = self._came_to(execution, run_id, last, sources, positions=positions)
        for source in sources:
            stop = SourceOptions.of(source.options).stop
            its, now = came[source.index], positions.get(source.index, {})
            if stop is None or reached(stop, its):
                continue
            gone = self._gone(execution, source, now, its)
            self._tell_of_gone(execution, source, stop, gone)
            missing = [
                f"{name_of(p)} at {its.get(p, 0)}, before {offset}"
                for p, offset in sorted(stop.offsets.items())
                if its.get(p, 0) < offset and p not in gone
            ]
            if not missing or not trigger.startswith(ENDING_TRIGGERS):
                continue
            # As read_kafka takes it: with partitions that have come since, without those gone.
            there = (stop.offsets.keys() | its.keys()) - (its.keys() - now.keys())
            logger.error(
                "query %s has ended before its stop: source %d is with %s. It was stopped, or "
                "found no more: with %s a query reads what is there when it begins, and nothing "
                "behind an open transaction upstream. To read the rest, start it again with "
                "stop=%s, or with a trigger that waits.",
                execution.query_id(),
                source.index,
                "; ".join(missing),
                trigger,
                as_argument({p: stop.offsets.get(p, 0) for p in there}),
            )

    @staticmethod
    def _tell_of_gone(
        execution: Execution, source: RunningSource, stop: Stop, gone: Offsets
    ) -> None:
        short = {p: at for p, at in sorted(gone.items()) if at < stop.offsets.get(p, 0)}
        if short:
            logger.error(
                "query %s has gone on without partitions of source %d before their stop: %s. They "
                "are gone, or were not seen for a moment, and failOnDataLoss=False accepts that. "
                "What is there of them can be read by a new query with a checkpointLocation of its "
                "own and start=%s.",
                execution.query_id(),
                source.index,
                "; ".join(
                    f"{name_of(p)} at {at}, before {stop.offsets[p]}" for p, at in short.items()
                ),
                as_argument(short),
            )

    def _came_to(
        self,
        execution: Execution,
        run_id: str,
        last: int | None,
        sources: tuple[RunningSource, ...],
        *,
        positions: Mapping[int, Offsets],
    ) -> dict[int, Offsets]:
        """How far each source was read: ``positions``, those behind the batch ``last``, and of the
        partitions that this run goes on without, where they were. Spark forgets these.
        """
        came = self._came.get(run_id)
        if came is None:
            first = self._first(execution, run_id)
            begins = {} if last is None or first > last else self._begins(execution, first, sources)
            came = self._came[run_id] = {s.index: dict(begins.get(s.index, {})) for s in sources}
        for index, its in came.items():
            its.update(positions.get(index, {}))
        return came

    @staticmethod
    def _gone(
        execution: Execution, source: RunningSource, positions: Offsets, came: Offsets
    ) -> Offsets:
        """The partitions that are on record as those without which the query has gone on, with how
        far they were. Only of this run: another topic may have come in the name of an older one.
        """
        forgotten = came.keys() - positions.keys()
        record = SourceRecord.of(local_folder(execution.checkpoint()), source)
        if not forgotten or record is None:
            return {}
        return {p: at for p, at in record.left_out_partitions().items() if p in forgotten}

    def _first(self, execution: Execution, run_id: str) -> int:
        """The first batch of this run."""
        first, reported = self._first_batch[run_id], execution.first_reported_batch()
        return first if reported is None else min(first, reported)

    def _begins(
        self, execution: Execution, first: int, sources: tuple[RunningSource, ...]
    ) -> dict[int, Offsets]:
        """Where the batch ``first`` begins, if Spark has kept that."""
        with suppress(CheckpointRefused):  # of a long run, in whose time Spark has removed it
            return self._committed(execution, first - 1 if first else None, sources)
        return {}

    def _records(
        self, execution: Execution, sources: tuple[RunningSource, ...]
    ) -> Iterator[tuple[RunningSource, StopRecord]]:
        """Of the sources of which Spark keeps something in the checkpoint."""
        for source in sources:
            record = StopRecord.of(self._spark, execution.checkpoint(), source)
            if record is not None:
                yield source, record

    def _committed(
        self, execution: Execution, last: int | None, sources: tuple[RunningSource, ...]
    ) -> dict[int, Offsets]:
        """The next offsets of each source behind the batch ``last``, or where the query begins."""
        root = execution.checkpoint()
        folder = local_folder(root)
        read: ReadText = (
            folder_reader(folder) if folder is not None else HadoopFiles(self._spark, root).read
        )
        if last is not None:
            ends = source_offsets(read, last, root).end
            return {index: from_json(text) for index, text in enumerate(ends)}
        return {source.index: initial_offsets(read, source) for source in sources}
