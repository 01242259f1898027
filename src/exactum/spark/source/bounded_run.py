"""One run of a query that reads bounded sources: how far it came, whether that is at its stops, and
what its user is told of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from pyspark.sql import SparkSession

from exactum.checkpoint.offset_log import ReadText, folder_reader, local_folder, source_offsets
from exactum.checkpoint.partition_offsets import Offsets, as_argument, from_json, name_of
from exactum.errors import CheckpointRefused
from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.hadoop_files import HadoopFiles
from exactum.spark.query import ENDING_TRIGGERS
from exactum.spark.source.initial_offsets import initial_offsets
from exactum.spark.source.query_sources import RunningSource
from exactum.spark.source.record import SourceRecord
from exactum.spark.source.source_options import SourceOptions, Stop
from exactum.spark.source.stop_guard import kept_from, refuse_lost
from exactum.spark.source.stop_position import reached
from exactum.spark.source.stop_record import StopRecord

logger = logging.getLogger("exactum")

NEVER = -1
"""The batch before the first one."""


class BoundedRun:
    """By what Spark's checkpoint says. For one thread."""

    def __init__(
        self, spark: SparkSession, execution: Execution, sources: tuple[RunningSource, ...]
    ) -> None:
        self._spark = spark
        self._execution = execution
        self._sources = sources
        self._first_batch: int | None = None  # no later than this one was its first
        self._kept_to: int | None = None  # the batch at which it keeps to its stops
        self._is_kept = False
        self._came: dict[int, Offsets] | None = None  # by index of the source

    # ---- its end -----------------------------------------------------------------------------

    def end_if_read(self, is_guarded: Callable[[], bool]) -> None:
        """Stop the query where its sources are read up to their stops; fail it where what lies past
        a stop on record would be lost. ``is_guarded``: whether its batches, by now, put their stops
        on record.

        Raises:
            Exception: what Spark or the checkpoint answers while a query ends. Ask again.
        """
        last = self._execution.last_logged_batch()
        self._note_first(last)
        positions = self._committed(last)
        if not self._is_kept or self._kept_to != last:
            if not self._keep_to_stops(last, positions):
                return
            self._is_kept, self._kept_to = True, last
        came = self._came_to(last, positions)
        for source in self._sources:
            stop = SourceOptions.of(source.options).stop
            if stop is None:
                return
            its = came[source.index]
            if not reached(stop, its):
                gone = self._gone(source, positions.get(source.index, {}), its)
                if not reached(stop, its | {p: stop.offsets.get(p, 0) for p in gone}):
                    return
        logger.info(
            "query %s has read its sources up to their stops and ends", self._execution.query_id()
        )
        self._execution.stop()
        if not is_guarded() and last is not None:
            self._warn_of_unrecorded(last, positions)

    def _keep_to_stops(self, last: int | None, positions: Mapping[int, Offsets]) -> bool:
        """Fail the query where what lies past a stop on record would be lost, or nobody can read
        that record; False: it failed, or is over.
        """
        for source, record in self._records():
            its = positions.get(source.index, {})
            try:
                was = record.stop(NEVER if last is None else last)
                refuse_lost(f"query {self._execution.query_id()}", source, was, its)
            except CheckpointRefused as error:
                # Unless a batch was refused meanwhile.
                if self._execution.fail(self._spark, f"{type(error).__name__}: {error}"):
                    logger.error("%s", error)
                return False
        return True

    def _warn_of_unrecorded(self, last: int, positions: Mapping[int, Offsets]) -> None:
        """Warn of what this run has read past its stops. Its query is over: nothing comes after."""
        first = self._first()
        if first > last:
            return
        begins = self._begins(first)
        for source, record in self._records():
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
                    self._execution.query_id(),
                    source.index,
                    ", ".join(past),
                    as_argument(rest),
                )

    # ---- what is told when it is over --------------------------------------------------------

    def tell_if_short(self) -> None:
        """Of a run that is over: say where it ended before its stop, or went on without a
        partition.

        Raises:
            Exception: as ``end_if_read``.
        """
        if self._execution.failure() is not None:
            return
        trigger, last = self._execution.trigger(), self._execution.last_logged_batch()
        self._note_first(last)
        positions = self._committed(last)
        came = self._came_to(last, positions)
        for source in self._sources:
            stop = SourceOptions.of(source.options).stop
            its, now = came[source.index], positions.get(source.index, {})
            if stop is None or reached(stop, its):
                continue
            gone = self._gone(source, now, its)
            self._tell_of_gone(source, stop, gone)
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
                self._execution.query_id(),
                source.index,
                "; ".join(missing),
                trigger,
                as_argument({p: stop.offsets.get(p, 0) for p in there}),
            )

    def _tell_of_gone(self, source: RunningSource, stop: Stop, gone: Offsets) -> None:
        short = {p: at for p, at in sorted(gone.items()) if at < stop.offsets.get(p, 0)}
        if short:
            logger.error(
                "query %s has gone on without partitions of source %d before their stop: %s. They "
                "are gone, or were not seen for a moment, and failOnDataLoss=False accepts that. "
                "What is there of them can be read by a new query with a checkpointLocation of its "
                "own and start=%s.",
                self._execution.query_id(),
                source.index,
                "; ".join(
                    f"{name_of(p)} at {at}, before {stop.offsets[p]}" for p, at in short.items()
                ),
                as_argument(short),
            )

    # ---- how far it came ---------------------------------------------------------------------

    def _came_to(self, last: int | None, positions: Mapping[int, Offsets]) -> Mapping[int, Offsets]:
        """How far each source was read: ``positions``, those behind the batch ``last``, and of the
        partitions that this run goes on without, where they were. Spark forgets these.
        """
        if self._came is None:
            first = self._first()
            begins = {} if last is None or first > last else self._begins(first)
            self._came = {s.index: dict(begins.get(s.index, {})) for s in self._sources}
        for index, its in self._came.items():
            its.update(positions.get(index, {}))
        return self._came

    def _gone(self, source: RunningSource, positions: Offsets, came: Offsets) -> Offsets:
        """The partitions that are on record as those without which the query has gone on, with how
        far they were. Only of this run: another topic may have come in the name of an older one.
        """
        forgotten = came.keys() - positions.keys()
        record = SourceRecord.of(local_folder(self._execution.checkpoint()), source)
        if not forgotten or record is None:
            return {}
        return {p: at for p, at in record.left_out_partitions().items() if p in forgotten}

    def _note_first(self, last: int | None) -> None:
        if self._first_batch is None:
            self._first_batch = (NEVER if last is None else last) + 1

    def _first(self) -> int:
        """The first batch of this run."""
        reported = self._execution.first_reported_batch()
        known = [batch for batch in (self._first_batch, reported) if batch is not None]
        return min(known)

    def _begins(self, first: int) -> dict[int, Offsets]:
        """Where the batch ``first`` begins, if Spark has kept that."""
        with suppress(CheckpointRefused):  # of a long run, in whose time Spark has removed it
            return self._committed(first - 1 if first else None)
        return {}

    def _records(self) -> Iterator[tuple[RunningSource, StopRecord]]:
        """Of the sources of which Spark keeps something in the checkpoint."""
        for source in self._sources:
            record = StopRecord.of(self._spark, self._execution.checkpoint(), source)
            if record is not None:
                yield source, record

    def _committed(self, last: int | None) -> dict[int, Offsets]:
        """The next offsets of each source behind the batch ``last``, or where the query begins."""
        root = self._execution.checkpoint()
        folder = local_folder(root)
        read: ReadText = (
            folder_reader(folder) if folder is not None else HadoopFiles(self._spark, root).read
        )
        if last is not None:
            ends = source_offsets(read, last, root).end
            return {index: from_json(text) for index, text in enumerate(ends)}
        return {source.index: initial_offsets(read, source) for source in self._sources}
