"""Tells how far a run is behind its topics: the event ``InputLag``, from what the topic watch sees
anyway.

A position is where the last complete batch ended: what is in a batch at hand is not in the sinks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from exactum import events
from exactum.checkpoint.partition_offsets import Offsets, from_json
from exactum.errors import ExactumError
from exactum.kafka.transaction import Partition
from exactum.spark.query import Batch, Run
from exactum.spark.source.lag_table import LagTable, TopicLag
from exactum.spark.source.watched_source import Look, WatchedSource

logger = logging.getLogger("exactum")

ASKED_MAX = 100
"""Records whose time is asked for at once; the rest later."""
ASKED_AGAIN_S = 15.0
"""How long nothing is asked for then. Meanwhile what was learned of an older record counts."""


class InputLags:
    """Of all Kafka sources of one run. ``saw`` and ``tell`` are called by one thread, the others by
    the query's; in the run's first batch ``saw`` as well, before the other one is there.
    """

    def __init__(self, watched: Sequence[WatchedSource], run: Run) -> None:
        self._run = run
        self._sources = [_SourceLag(source, str(run)) for source in watched]

    def begin(self, batch: Batch) -> None:
        """The first batch of the run: it begins where the last complete one ended."""
        for source in self._sources:
            source.begin(batch, self._run)

    def done(self, batch: Batch) -> None:
        """A batch stands in every sink."""
        for source in self._sources:
            source.done(batch)

    def saw(self, place: int, look: Look) -> None:
        """The topics of the source with this place among the watched ones."""
        self._sources[place].saw(look, time.monotonic())

    def tell(self, batch_id: int) -> None:
        """An event for each topic that was seen since the last call and has a position."""
        found: dict[str, TopicLag] = {}
        for source in self._sources:
            for topic, lag in source.take().items():
                found[topic] = lag if topic not in found else found[topic].plus(lag)
        for topic, lag in sorted(found.items()):
            seconds = None if lag.seconds is None else round(lag.seconds, 3)
            self._run.emit(
                events.InputLag(
                    *self._run.about(batch_id),
                    topic,
                    lag.partitions,
                    lag.records,
                    seconds,
                    lag.lso_gap,
                )
            )


class _SourceLag:
    def __init__(self, source: WatchedSource, where: str) -> None:
        self._source = source
        self._where = where
        self._table = LagTable()
        self._positions: Offsets | None = None
        self._look: Look | None = None
        self._ask_from_s = 0.0

    def begin(self, batch: Batch, run: Run) -> None:
        index = self._source.source.index
        if index < len(batch.offsets.start):
            self._positions = from_json(batch.offsets.start[index])
        elif batch.batch_id == 0:
            self._positions = self._source.source.initial_offsets(run.read) or None

    def done(self, batch: Batch) -> None:
        self._positions = from_json(batch.offsets.end[self._source.source.index])

    def saw(self, look: Look, now_s: float) -> None:
        self._look = look
        ends = look.last_stable_offsets if self._source.read_committed else look.high_watermarks
        stop = self._source.chosen.stop
        if stop is not None:  # what lies past it is not to be read
            ends = {p: min(end, stop.get(p, 0)) for p, end in ends.items()}
        self._table.saw(ends, now_s)

    def take(self) -> dict[str, TopicLag]:
        """The lag of each topic at the last look; none where that was taken already."""
        look, self._look = self._look, None
        if look is None or self._positions is None:
            return {}
        positions = self._blocked(look, self._positions)
        behind = self._table.behind(positions)
        now_s = time.monotonic()
        passed = {
            p: self._table.passed_s(p, positions[p]) for p, records in behind.items() if records
        }
        older = [p for p in sorted(passed) if not self._table.reaches_back(p, positions[p])]
        if older and now_s >= self._ask_from_s:
            first = sorted(older, key=lambda p: passed[p] is not None)[:ASKED_MAX]
            self._ask({p: positions[p] for p in first}, now_s)
            passed.update({p: self._table.passed_s(p, positions[p]) for p in older})
        found: dict[str, TopicLag] = {}
        for partition, records in behind.items():
            at_s = passed.get(partition)
            seconds = 0.0 if not records else None if at_s is None else max(0.0, now_s - at_s)
            lag = TopicLag(1, records, seconds, _lso_gap(look, partition))
            before = found.get(partition[0])
            found[partition[0]] = lag if before is None else before.plus(lag)
        return found

    def _blocked(self, look: Look, positions: Offsets) -> Offsets:
        """Positions among what the log still has; a partition that is new is read from its
        beginning.
        """
        return {
            partition: max(positions.get(partition, 0), beginning)
            for partition, beginning in look.beginnings.items()
        }

    def _ask(self, offsets: Mapping[Partition, int], now_s: float) -> None:
        """After a start the looks do not reach back: the records there know how old they are."""
        wall_ms = time.time() * 1000
        self._ask_from_s = now_s + ASKED_AGAIN_S
        try:
            times = self._source.requests.record_times(offsets)
        except ExactumError as error:
            logger.debug("%s: the age of what it has not read is not known: %s", self._where, error)
            return
        for partition, at_ms in times.items():
            age_s = max(0.0, (wall_ms - at_ms) / 1000)
            self._table.learned(partition, offsets[partition], now_s - age_s)


def _lso_gap(look: Look, partition: Partition) -> int:
    mark = look.high_watermarks.get(partition, 0)
    return max(0, mark - look.last_stable_offsets.get(partition, mark))
