"""The topics that a query reads: they are those that it has read so far, and nothing is gone of
them.

They are looked at when a run begins, before anything is written, where a batch reads other
partitions than the one before, and every few seconds; what is found wrong then refuses the next
batch, or ends a query that waits for one. Whatever is looked at is compared with a batch that was
planned before. From the same answers onlookers see transactions upstream that keep the query back,
and how far it is behind.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from exactum import events
from exactum.errors import CheckpointRefused
from exactum.kafka.requests import Holder
from exactum.protocol.model import Completed, SourceOffsets
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.live import RunningSource
from exactum.spark.query import Run
from exactum.spark.source.clients import Clients
from exactum.spark.source.group_offsets import CommittedSource, GroupOffsets
from exactum.spark.source.input_lags import InputLags
from exactum.spark.source.kafka_options import ISOLATION, reads_committed
from exactum.spark.source.query_sources import kafka_sources_of
from exactum.spark.source.source_options import SourceOptions
from exactum.spark.source.upstream_stall import Stall, StallTracker
from exactum.spark.source.watched_source import Look, SourceRange, WatchedSource

logger = logging.getLogger("exactum")

LOOK_EVERY_S = 5.0


def topic_watch_of(run: Run, clients: Clients) -> TopicWatch | None:
    """Watches the query's Kafka sources; None where it has no such source, or the driver cannot log
    in as they do. It uses ``clients`` to its end.

    Raises:
        SettingRefused: the driver cannot log in as a source does, and has to commit offsets.
    """
    sources = kafka_sources_of(run)
    watched: list[WatchedSource] = []
    committed: list[CommittedSource] = []
    for source in sources:
        _warn_of_uncommitted(run, source)
        requests = clients.of(source)
        if requests is None:
            continue
        watched.append(WatchedSource(run, source, requests, run.record))
        chosen = SourceOptions.of(source.options)
        if chosen.commit_offsets:
            committed.append(CommittedSource(source, chosen, requests))
    return TopicWatch(run, watched, GroupOffsets(run, committed)) if watched else None


def _warn_of_uncommitted(run: Run, source: RunningSource) -> None:
    if not SourceOptions.of(source.options).source_id and not reads_committed(source.options):
        logger.warning(
            "%s: source %d, made by Spark's own reader, reads records of transactions that are "
            "still open or were aborted as if they were valid: kafka.isolation.level is not "
            'read_committed. Say .option("%s", "read_committed"), or use exactum.read_kafka.',
            run,
            source.index,
            ISOLATION,
        )


class TopicWatch(EpochListener):
    """Watches all Kafka sources of one run. ``tend`` is called by one thread, the others by the
    query's.
    """

    every_s = 0.0
    """What was found wrong ends the query as soon as it is between two batches; looks have a clock
    of their own."""
    trouble = "the topics are not watched"

    def __init__(self, run: Run, watched: Sequence[WatchedSource], groups: GroupOffsets) -> None:
        self._run = run
        self._watched = tuple(watched)
        self.groups = groups
        self._lags = InputLags(watched, run)
        self._stalls = [StallTracker(source.chosen.stall_after_s) for source in watched]
        self._trouble: CheckpointRefused | None = None
        self._reported: set[str] = set()
        self._batch: Batch | None = None
        self._at_work = True
        self._closed = False
        self._asked_s = 0.0

    def begin(self, batch: Batch) -> None:
        """
        Raises:
            CheckpointRefused: see ``WatchedSource.look``.
            Unavailable, SettingRefused: likewise, where this is the run's first batch, or one that
                reads other partitions than the one before; or two sources have one group.
        """
        self._at_work = True
        if self._trouble is not None:
            raise self._trouble
        planned = self._ranges(batch.offsets)
        for place, source in enumerate(self._watched):
            if batch.first:
                self._lags.saw(place, source.look(planned[place]))
            elif source.differs(planned[place]):
                source.look(planned[place])
        if batch.first:
            self._asked_s = time.monotonic()
            self._lags.begin(batch)
            self.groups.begin(batch)
        self._batch = batch

    def done(self, batch: Batch, completed: Completed) -> None:
        self._at_work = False
        self._lags.done(batch)
        self.groups.done(batch)

    def tend(self) -> None:
        """Look again, if it is time.

        Raises:
            CheckpointRefused: a look has found that the next batch will be refused.
        """
        batch = self._batch
        if batch is None or self._closed:
            return
        if time.monotonic() - self._asked_s >= LOOK_EVERY_S:
            self._asked_s = time.monotonic()
            for place, planned in enumerate(self._ranges(batch.offsets)):
                self._look(place, planned.rest())
        if self._trouble is not None and not self._at_work:
            raise self._trouble
        self._report_lags()

    def close(self) -> None:
        """A look that is under way ends with its client."""
        self._closed = True
        self.groups.close()

    def _ranges(self, offsets: SourceOffsets) -> list[SourceRange]:
        return [SourceRange.of(offsets, source.source.index) for source in self._watched]

    def _look(self, place: int, planned: SourceRange) -> None:
        source = self._watched[place]
        try:
            look = source.look(planned)
        except CheckpointRefused as error:
            self._trouble = self._trouble or error
            return
        except Exception as error:  # noqa: BLE001  (a topic that does not answer may come back)
            self._warn_once(error, source)
            return
        self._lags.saw(place, look)
        if source.read_committed:
            self._report_stalls(self._stalls[place], look, source)

    def _report_lags(self) -> None:
        try:
            self._lags.tell(self._name()[1])
        except Exception as error:  # noqa: BLE001  (an onlooker's trouble is not the query's)
            logger.debug("%s: how far it is behind is not known: %r", self._run, error)

    def _warn_once(self, error: Exception, source: WatchedSource) -> None:
        kind = f"{source.source.index} {type(error).__name__}"
        if kind in self._reported or self._closed:
            return
        self._reported.add(kind)
        logger.warning(
            "%s: the topics could not be looked at, so it is not known whether they changed: %s",
            self._run,
            error,
        )

    def _report_stalls(self, tracker: StallTracker, look: Look, source: WatchedSource) -> None:
        began, over = tracker.update(
            look.last_stable_offsets, look.high_watermarks, time.monotonic()
        )
        for stall in over:
            self._run.emit(
                events.UpstreamMoved(*self._name(), *stall.partition, self._since_ms(stall))
            )
        if not began:
            return
        who: Mapping[tuple[str, int], Holder] = {}
        try:
            who = source.requests.holders({s.partition: s.last_stable_offset for s in began})
        except Exception as error:  # noqa: BLE001  (likewise)
            logger.debug("%s: who holds its partitions back is not known: %s", self._run, error)
        for stall in began:
            holder = who.get(stall.partition)
            self._run.emit(
                events.UpstreamStalled(
                    *self._name(),
                    *stall.partition,
                    self._since_ms(stall),
                    stall.last_stable_offset,
                    stall.lso_gap,
                    None if holder is None else holder.producer_id,
                    None if holder is None else holder.transactional_id,
                )
            )

    def _name(self) -> tuple[str, int, str]:
        return self._run.about(-1 if self._batch is None else self._batch.batch_id)

    @staticmethod
    def _since_ms(stall: Stall) -> int:
        return round((time.time() - (time.monotonic() - stall.since_s)) * 1000)
