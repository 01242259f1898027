"""The topics that a query reads: they are those that it has read so far, and nothing is gone of
them.

They are checked when a run begins, before anything is written, where a batch reads other partitions
than the one before, and every few seconds, also while nothing is there to be read; what is found
wrong then refuses the next batch, or ends a query that waits for one. What the cluster says is
compared with a batch that was planned before.
From the same answers onlookers see transactions upstream that keep the query back, and how far it
is behind.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from exactum import events
from exactum.checkpoint.offset_log import OFFSETS, Offsets, source_offsets
from exactum.errors import CheckpointRefused, SettingRefused
from exactum.kafka.connection_settings import librdkafka_settings
from exactum.kafka.requests import OF_A_READER, BrokerRequests, Holder
from exactum.kafka.transaction import Partition
from exactum.protocol.model import Completed
from exactum.spark.live import RunningSource, SourceRange, ranges_of
from exactum.spark.query import Batch, EpochListener, Run
from exactum.spark.source.bounds import kafka_sources_of
from exactum.spark.source.groups import GroupOffsets
from exactum.spark.source.lag import Stall, TopicLag, TopicState
from exactum.spark.source.options import ISOLATION, SourceOptions
from exactum.spark.source.watched_source import WatchedSource

logger = logging.getLogger("exactum")

CHECK_EVERY_S = 5.0


class Clients:
    """The driver's connections to the clusters that a query reads from: one for each way to
    connect. They are closed with the run.

    Forgotten ones would stay: Spark's JVM refers to what ``foreachBatch`` was given for as long as
    it likes, and what holds more than 1,024 descriptors cannot be called by that JVM any more (py4j
    waits by ``select``).
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._made: dict[tuple[tuple[str, str], ...], BrokerRequests] = {}

    def of(self, source: RunningSource) -> BrokerRequests | None:
        """A client for the source's cluster; None, with a warning, where the driver cannot log in
        as Spark does.

        Raises:
            SettingRefused: likewise, and the source's offsets are to be committed to a group.
        """
        where = str(self._run)
        chosen = SourceOptions.of(source.options)
        try:
            settings = librdkafka_settings(source.options, chosen.client, where)
            key = tuple(sorted(settings.items()))
            if key not in self._made:
                self._made[key] = BrokerRequests(settings, where, OF_A_READER)
        except SettingRefused as error:
            if chosen.group_id:
                raise
            logger.warning(
                "Source %d is not watched for topics that change: %s", source.index, error
            )
            return None
        return self._made[key]

    def close(self) -> None:
        """After those who use them: whoever still waits for an answer hears that it is closed."""
        for requests in self._made.values():
            requests.close()


def topic_watch_of(run: Run, clients: Clients) -> TopicWatch | None:
    """Watches the query's Kafka sources; None where it has no such source, or the driver cannot log
    in as they do. It uses ``clients`` to its end.

    Raises:
        SettingRefused: the driver cannot log in as a source does, and has to commit offsets.
        CheckpointRefused, Unavailable: as ``TopicWatch.open``.
    """
    watched: list[WatchedSource] = []
    for source in kafka_sources_of(run):
        chosen = SourceOptions.of(source.options)
        if not chosen.source_id and not chosen.read_committed:
            logger.warning(
                "%s: source %d, made by Spark's own reader, reads records of transactions that are "
                "still open or were aborted as if they were valid: kafka.isolation.level is not "
                'read_committed. Say .option("%s", "read_committed"), or use exactum.read_kafka.',
                run,
                source.index,
                ISOLATION,
            )
        requests = clients.of(source)
        if requests is not None:
            watched.append(WatchedSource(run, source, requests, run.record))
    if not watched:
        return None
    watch = TopicWatch(run, watched)
    watch.open()
    return watch


class TopicWatch(EpochListener):
    """Watches all Kafka sources of one run. ``tend`` is called by one thread, the others by the
    query's.
    """

    every_s = 0.0
    """What was found wrong ends the query as soon as it is between two batches; checks have a clock
    of their own."""
    trouble = "the topics are not watched"

    def __init__(self, run: Run, watched: Sequence[WatchedSource]) -> None:
        self._run = run
        self._watched = tuple(watched)
        seen = {one.source.index for one in watched}
        self._not_counted = {s.index: str(s) for s in run.sources if s.same_as not in seen}
        self.groups = GroupOffsets(run, watched)
        self._batch_id = -1
        self._planned: tuple[SourceRange, ...] = ()
        self._trouble: CheckpointRefused | None = None
        self._reported: set[str] = set()
        self._at_work = True
        self._closed = False
        self._asked_s = 0.0

    def open(self) -> None:
        """Compare the topics with those on record, where Spark has planned no batch yet.

        Raises:
            CheckpointRefused, Unavailable, SettingRefused: see ``WatchedSource.refuse_others``.
        """
        run, last = self._run, self._run.first_batch_id - 1
        if last < 0 or run.read(f"{OFFSETS}/{last + 1}") is not None:
            return
        offsets = source_offsets(run.read, last, run.checkpoint)
        planned = tuple(own.rest() for own in self._own(ranges_of(offsets)))
        for source, own in zip(self._watched, planned, strict=True):
            source.refuse_others(own)
        self._at_work, self._asked_s = False, time.monotonic()
        self._batch_id, self._planned = last, planned

    def begin(self, batch: Batch) -> None:
        """
        Raises:
            CheckpointRefused: what was found wrong between the batches.
            SettingRefused: two sources have one group.
        """
        self._at_work = True
        if self._trouble is not None:
            raise self._trouble
        planned = self._own(batch.ranges)
        if batch.first:
            self._asked_s = time.monotonic()
            self.groups.begin(self._ends(planned))
            for source, own in zip(self._watched, planned, strict=True):
                source.lag.position = own.begins or None  # where the last complete one ended
        self._batch_id, self._planned = batch.batch_id, planned

    def writing(self, batch: Batch) -> None:
        """Not before: a batch that is decided is committed, whatever has become of its input.

        Raises:
            CheckpointRefused, Unavailable, SettingRefused: see ``WatchedSource.check``, where this
                is the run's first batch, or one that reads other partitions than the one before.
        """
        for source, own in zip(self._watched, self._planned, strict=True):
            if batch.first or source.differs(own):
                source.lag.saw(source.check(own))

    def redelivered(self, batch: Batch) -> None:
        """Raises as ``writing``, about what comes after it."""
        for source, own in zip(self._watched, self._planned, strict=True):
            source.lag.saw(source.check(own.rest()))

    def done(self, batch: Batch, completed: Completed) -> None:
        self._at_work = False
        for source, own in zip(self._watched, self._planned, strict=True):
            source.lag.position = own.ends
        self.groups.done(self._ends(self._planned))

    def tend(self) -> None:
        """Check again, if it is time.

        Raises:
            CheckpointRefused: it was found that the next batch will be refused.
        """
        planned = self._planned
        if not planned or self._closed:
            return
        if time.monotonic() - self._asked_s >= CHECK_EVERY_S:
            self._asked_s = time.monotonic()
            for source, own in zip(self._watched, planned, strict=True):
                self._check(source, own.rest())
        if self._trouble is not None and not self._at_work:
            raise self._trouble
        try:
            self._report_lags()
        except Exception as error:  # noqa: BLE001  (an onlooker's trouble is not the query's)
            logger.debug("%s: how far it is behind is not known: %r", self._run, error)

    def close(self) -> None:
        """A check that is under way ends with its client."""
        self._closed = True
        self.groups.close()

    def _own(self, ranges: Sequence[SourceRange]) -> tuple[SourceRange, ...]:
        """Those of what is watched; an empty one where Spark has logged fewer sources."""
        known = dict(enumerate(ranges))
        return tuple(known.get(one.source.index, SourceRange()) for one in self._watched)

    def _ends(self, planned: Sequence[SourceRange]) -> Mapping[int, Offsets]:
        """Where each source ends, by its index."""
        return {s.source.index: own.ends for s, own in zip(self._watched, planned, strict=True)}

    def _check(self, source: WatchedSource, planned: SourceRange) -> None:
        try:
            state = source.check(planned)
        except CheckpointRefused as error:
            self._trouble = self._trouble or error
            return
        except Exception as error:  # noqa: BLE001  (a topic that does not answer may come back)
            self._not_counted[source.source.index] = str(source.source)
            self._warn_once(error, source)
            return
        self._not_counted.pop(source.source.index, None)
        source.lag.saw(state)
        if source.chosen.read_committed:
            self._report_stalls(source, state)

    def _report_lags(self) -> None:
        """An event for each topic that was seen since the last call and has a position."""
        found: dict[str, TopicLag] = {}
        for source in self._watched:
            for topic, lag in source.lag.take(source.requests).items():
                found[topic] = lag if topic not in found else found[topic].plus(lag)
        for topic, lag in sorted(found.items()):
            seconds = None if lag.seconds is None else round(lag.seconds, 3)
            about, rest = self._run.about(self._batch_id), tuple(self._not_counted.values())
            self._run.emit(
                events.InputLag(
                    *about, topic, lag.partitions, lag.records, seconds, lag.lso_gap, rest
                )
            )

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

    def _report_stalls(self, source: WatchedSource, state: TopicState) -> None:
        began, over = source.stalls.update(
            state.last_stable_offsets, state.high_watermarks, time.monotonic()
        )
        about = self._run.about(self._batch_id)
        for stall in over:
            self._run.emit(events.UpstreamMoved(*about, *stall.partition, _since_ms(stall)))
        if not began:
            return
        who: Mapping[Partition, Holder] = {}
        try:
            who = source.requests.holders({s.partition: s.last_stable_offset for s in began})
        except Exception as error:  # noqa: BLE001  (likewise)
            logger.debug("%s: who holds its partitions back is not known: %s", self._run, error)
        for stall in began:
            holder = who.get(stall.partition)
            self._run.emit(
                events.UpstreamStalled(
                    *about,
                    *stall.partition,
                    _since_ms(stall),
                    stall.last_stable_offset,
                    stall.lso_gap,
                    None if holder is None else holder.producer_id,
                    None if holder is None else holder.transactional_id,
                )
            )


def _since_ms(stall: Stall) -> int:
    return round((time.time() - (time.monotonic() - stall.since_s)) * 1000)
