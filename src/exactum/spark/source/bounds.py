"""Where the sources of a run begin, and where it ends."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from exactum.checkpoint.offset_log import SOURCES, Offsets, source_offsets
from exactum.protocol.model import Completed
from exactum.spark.live import RunningSource, noted_offsets, ranges_of
from exactum.spark.open_queries import Stoppable
from exactum.spark.query import Batch, EpochListener, Run
from exactum.spark.source.options import SourceOptions

logger = logging.getLogger("exactum")

WAITING = "Waiting"
"""How Spark's words begin for what a query does that has asked for offsets, and found none."""


def kafka_sources_of(run: Run) -> list[RunningSource]:
    """Kafka's, each stream once."""
    return [s for s in run.sources if s.is_kafka and s.same_as == s.index]


def initial_offsets(run: Run, lines: int) -> list[Offsets]:
    """Where the query's first batch begins to read its sources, in the order of the offset log's
    ``lines``; empty where that is not on record. A stream that is read twice has two lines, and one
    folder. Where nobody tells the sources, each line is taken for a stream of its own.
    """
    folders = [source.metadata if source.is_kafka else None for source in run.sources]
    folders = folders or [f"{SOURCES}/{line}" for line in range(lines)]
    return [{} if folder is None else noted_offsets(run.read, f"{folder}/0") for folder in folders]


def stops_of(run: Run) -> list[Offsets]:
    """Those of all its sources; none where one of them has no stop."""
    found = [SourceOptions.of(source.options).stop for source in run.sources]
    stops = [stop for stop in found if stop is not None]
    return stops if len(stops) == len(found) else []


class Bounds(EpochListener):
    """Ends a run that all its sources have a stop for, when everything before the stops is in the
    sinks. A duty of the run: no batch reads past a stop, but Spark's streams have no end, and a
    query that finds nothing to read runs no batch in which anybody could look.
    """

    every_s = 0.5
    trouble = "whether it has come to its stops is not known, so it goes on"

    def __init__(self, run: Run, stops: Sequence[Offsets], gate: Stoppable) -> None:
        self._run = run
        self._stops = tuple(stops)
        self._gate = gate
        self._came: Sequence[Offsets] = ()  # set by the query's thread alone; empty: no batch yet

    def done(self, batch: Batch, completed: Completed) -> None:
        """See the base class. Spark forgets a topic that is gone; it was read as far as it was."""
        before = self._came or [own.begins for own in batch.ranges]
        now = [own.ends for own in batch.ranges]
        self._came = [{**a, **b} for a, b in zip(before, now, strict=True)]

    def tend(self) -> None:
        """Stop the query if it is read up to the stops, and Spark has logged its last batch."""
        sources = self._came
        if not sources:
            # Before it waits, it has not yet found that its topics are those of the checkpoint.
            if not self._run.live.doing().startswith(WAITING):
                return
            sources = self._begins()
        for came, stop in zip(sources, self._stops, strict=True):
            if any(came.get(partition, 0) < offset for partition, offset in stop.items()):
                return
        if self._gate.between_epochs(math.inf):
            logger.info("%s has read its sources up to their stops and ends", self._run)
            self._run.at_stops.set()
            self._run.live.stop()

    def _begins(self) -> list[Offsets]:
        run = self._run
        if run.first_batch_id == 0:
            return initial_offsets(run, len(self._stops))
        last = source_offsets(run.read, run.first_batch_id - 1, run.checkpoint)
        return [own.ends for own in ranges_of(last)]
