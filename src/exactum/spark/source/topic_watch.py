"""A listener that makes sure a query reads what it has read so far: the same topics, and nothing is
gone of them.

It looks when a run begins, before anything is written, and every few seconds from then on; what it
finds wrong refuses the next batch. It tells of transactions upstream that hold the query back, and
how far the query is behind, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from exactum import events
from exactum.errors import CheckpointRefused, ExactumError
from exactum.kafka.requests.open_transactions import Holder, holders
from exactum.kafka.requests.topic_requests import TopicSeen
from exactum.protocol.model import Completed
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.run_context import RunContext
from exactum.spark.source.input_lags import InputLags
from exactum.spark.source.upstream_stall import Stall, StallTracker
from exactum.spark.source.watched_source import Look, WatchedSource

logger = logging.getLogger("exactum")

LOOK_EVERY_S = 5.0
FIRST_LOOK_TIMEOUT_S = 30.0
SURE_AFTER_S = 4.0
"""How long a topic that was read must be away, or another one, before it is taken for gone."""
SURE_PAUSE_S = 0.4


class TopicWatch(EpochListener):
    """Watches all Kafka sources of one run. The first look begins with the object, beside what else
    is opened.

    ``settings`` are librdkafka's for each source, to find out who holds it back.
    """

    def __init__(
        self, watched: Sequence[tuple[WatchedSource, Mapping[str, str]]], context: RunContext
    ) -> None:
        self._watched = tuple(watched)
        self._running = context.query
        self._context = context
        self._lags = InputLags(watched, context)
        self._stalls = [StallTracker(source.chosen.stall_after_s) for source, _ in watched]
        self._looks: list[Look | None] = [None] * len(
            self._watched
        )  # not compared with a batch yet
        self._changed: str | None = None
        self._told: set[str] = set()
        self._batch: Batch | None = None
        self._closed = False
        self._last_look_s = 0.0
        self._look_thread = self._begin_look()

    def begin(self, batch: Batch) -> None:
        """
        Raises:
            CheckpointRefused: see ``WatchedSource.changed``, ``take_up`` and ``check``.
            Unavailable, SettingRefused: see ``WatchedSource.take_up``.
        """
        if batch.first:
            self._look_thread.join(FIRST_LOOK_TIMEOUT_S)
            self._lags.begin(batch)
        self._batch = batch
        if self._changed is not None:
            raise CheckpointRefused(self._changed)
        for place, (source, _) in enumerate(self._watched):
            index = source.source.index
            start = batch.offsets.start[index] if index < len(batch.offsets.start) else None
            source.take_up(start, batch.offsets.end[index])
            look, self._looks[place] = self._looks[place], None
            if look is not None:
                source.check(look, start, batch.offsets.end[index])

    def done(self, batch: Batch, completed: Completed) -> None:
        """See the base class."""
        self._lags.done(batch)

    def idle(self) -> None:
        """Look again in the background, if it is time."""
        if (
            not self._look_thread.is_alive()
            and time.monotonic() - self._last_look_s >= LOOK_EVERY_S
        ):
            self._look_thread = self._begin_look()

    def close(self) -> None:
        """A look that is under way ends by itself, within its time."""
        self._closed = True

    def _begin_look(self) -> threading.Thread:
        thread = threading.Thread(target=self._look, name="exactum-topics", daemon=True)
        thread.start()
        return thread

    def _look(self) -> None:
        self._last_look_s = time.monotonic()
        for place, (source, settings) in enumerate(self._watched):
            if self._closed:
                return
            try:
                topics = self._settled_topics(source)
                self._note_change(source.changed(topics))
                for name in source.newly_gone(topics):
                    self._context.emit(events.TopicForgotten(*self._name(), name))
                look = source.look(topics)
                self._looks[place] = look
                self._lags.saw(place, look)
                if source.read_committed:
                    self._tell_of_stalls(self._stalls[place], look, settings)
            except Exception as error:  # noqa: BLE001  (a thread has nobody else to tell)
                self._warn_once(f"{source.source.index} {type(error).__name__}", error)
        if not self._closed:
            self._tell_of_lags()

    def _tell_of_lags(self) -> None:
        try:
            self._lags.tell(self._name()[1])
        except Exception as error:  # noqa: BLE001  (an onlooker's trouble is not the query's)
            logger.debug("%s: how far it is behind is not known: %r", self._running, error)

    def _settled_topics(self, source: WatchedSource) -> Mapping[str, TopicSeen]:
        """The topics that are there. What would stop the query for good is looked at again for some
        seconds: a broker that has just started, or hears of a change late, calls a topic unknown
        that is there.
        """
        deadline_s = time.monotonic() + SURE_AFTER_S
        while True:
            topics = source.topics()
            if not source.misses_any(topics) or time.monotonic() > deadline_s or self._closed:
                return topics
            time.sleep(SURE_PAUSE_S)

    def _note_change(self, changed: str | None) -> None:
        """Known for good: a topic that is gone may come back, but then it is another one."""
        if changed is not None and self._changed is None:
            self._changed = changed
            if self._batch is not None:  # else the first batch says so at once
                logger.error("The next batch will be refused. %s", changed)

    def _warn_once(self, kind: str, error: Exception) -> None:
        if kind not in self._told and not self._closed:
            self._told.add(kind)
            logger.warning(
                "%s: the topics could not be looked at, so it is not known whether they changed: "
                "%s",
                self._running,
                error,
            )

    def _tell_of_stalls(
        self, tracker: StallTracker, look: Look, settings: Mapping[str, str]
    ) -> None:
        began, over = tracker.update(
            look.last_stable_offsets, look.high_watermarks, time.monotonic()
        )
        for stall in over:
            self._context.emit(
                events.UpstreamMoved(*self._name(), *stall.partition, self._since_ms(stall))
            )
        if not began:
            return
        who: Mapping[tuple[str, int], Holder] = {}
        try:
            who = holders(
                settings, {s.partition: s.last_stable_offset for s in began}, str(self._running)
            )
        except ExactumError as error:
            logger.debug("%s: who holds its partitions back is not known: %s", self._running, error)
        for stall in began:
            holder = who.get(stall.partition)
            self._context.emit(
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
        return self._context.about(-1 if self._batch is None else self._batch.batch_id)

    @staticmethod
    def _since_ms(stall: Stall) -> int:
        return round((time.time() - (time.monotonic() - stall.since_s)) * 1000)
