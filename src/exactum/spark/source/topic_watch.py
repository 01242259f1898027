"""A listener that makes sure a query reads what it has read so far: the same topics, and nothing is
gone of them.

It looks when a run begins, before anything is written, where a batch reads other partitions than
the one before, and every few seconds; what it finds wrong then refuses the next batch, or ends a
query that waits for one. Whatever it looks at, it compares with a batch that was planned before. It
tells of transactions upstream that hold the query back, and how far the query is behind, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from exactum import events
from exactum.checkpoint.offset_log import source_offsets
from exactum.errors import CheckpointRefused
from exactum.kafka.requests.broker_requests import Holder
from exactum.protocol.model import Completed, SourceOffsets
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.run_context import RunContext
from exactum.spark.source.input_lags import InputLags
from exactum.spark.source.upstream_stall import Stall, StallTracker
from exactum.spark.source.watched_source import Look, SourceRange, WatchedSource

logger = logging.getLogger("exactum")

LOOK_EVERY_S = 5.0
FIRST_POLL_S = 0.1


class TopicWatch(EpochListener):
    """Watches all Kafka sources of one run. The first look begins with the object, beside what else
    is opened.
    """

    def __init__(self, watched: Sequence[WatchedSource], context: RunContext) -> None:
        self._watched = tuple(watched)
        self._running = context.query
        self._context = context
        self._lags = InputLags(watched, context)
        self._stalls = [StallTracker(source.chosen.stall_after_s) for source in watched]
        self._trouble: Exception | None = None
        self._reported: set[str] = set()
        self._batch: Batch | None = None
        self._at_work = True
        self._closed = False
        self._last_look_s = 0.0
        self._begun = threading.Event()
        self._look_thread = threading.Thread(
            target=self._first_look, name="exactum-topics", daemon=True
        )
        self._look_thread.start()

    def begin(self, batch: Batch) -> None:
        """
        Raises:
            CheckpointRefused: see ``WatchedSource.look``.
            Unavailable, SettingRefused: likewise, where this is the run's first batch, or one that
                reads other partitions than the one before.
        """
        if batch.first:
            self._begun.set()
            self._look_thread.join()  # each of its requests ends within its time
            self._lags.begin(batch)
        self._batch = batch
        self._at_work = True
        if self._trouble is not None:
            raise self._trouble
        for source, planned in zip(self._watched, self._ranges(batch.offsets), strict=True):
            if not batch.first and source.differs(planned):
                source.look(planned)

    def done(self, batch: Batch, completed: Completed) -> None:
        """See the base class."""
        self._at_work = False
        self._lags.done(batch)

    def idle(self) -> None:
        """Look again in the background, if it is time.

        Raises:
            CheckpointRefused: a look has found that the next batch will be refused.
        """
        if self._trouble is not None and self._batch is not None and not self._at_work:
            raise self._trouble
        due = time.monotonic() - self._last_look_s >= LOOK_EVERY_S
        if due and self._batch is not None and not self._look_thread.is_alive():
            self._look_thread = self._begin_look(
                [planned.rest() for planned in self._ranges(self._batch.offsets)]
            )

    def close(self) -> None:
        """A look that is under way ends by itself, within its time."""
        self._closed = True
        self._begun.set()

    def _first_look(self) -> None:
        """As soon as Spark has planned the run's first batch."""
        read, batch_id = self._context.read, self._context.first_batch_id
        poll_s = None if self._running.folder is None else FIRST_POLL_S  # a store's answer costs
        while read(f"offsets/{batch_id}") is None:
            if self._begun.wait(poll_s):
                break
        if self._closed:
            return
        self._last_look_s = time.monotonic()
        try:
            ranges = self._ranges(source_offsets(read, batch_id, self._running.checkpoint))
        except Exception as error:  # noqa: BLE001  (the first batch is refused with it)
            self._trouble = error
            return
        self._look(ranges)

    def _ranges(self, offsets: SourceOffsets) -> list[SourceRange]:
        return [SourceRange.of(offsets, source.source.index) for source in self._watched]

    def _begin_look(self, ranges: Sequence[SourceRange]) -> threading.Thread:
        self._last_look_s = time.monotonic()
        thread = threading.Thread(
            target=self._look, args=(ranges,), name="exactum-topics", daemon=True
        )
        thread.start()
        return thread

    def _look(self, ranges: Sequence[SourceRange]) -> None:
        for place, planned in enumerate(ranges):
            source = self._watched[place]
            if self._closed:
                return
            try:
                look = source.look(planned)
            except Exception as error:  # noqa: BLE001  (a thread has nobody else to tell)
                self._note(error, source)
                continue
            self._lags.saw(place, look)
            if source.read_committed:
                self._report_stalls(self._stalls[place], look, source)
        if not self._closed:
            self._report_lags()

    def _report_lags(self) -> None:
        try:
            self._lags.tell(self._name()[1])
        except Exception as error:  # noqa: BLE001  (an onlooker's trouble is not the query's)
            logger.debug("%s: how far it is behind is not known: %r", self._running, error)

    def _note(self, error: Exception, source: WatchedSource) -> None:
        """The first batch is refused for any trouble, a later one for what is known for good: a
        topic that is gone may come back, but then it is another one.
        """
        if self._batch is None or isinstance(error, CheckpointRefused):
            self._trouble = self._trouble or error
        elif (kind := f"{source.source.index} {type(error).__name__}") not in self._reported:
            self._reported.add(kind)
            if not self._closed:
                logger.warning(
                    "%s: the topics could not be looked at, so it is not known whether they "
                    "changed: %s",
                    self._running,
                    error,
                )

    def _report_stalls(self, tracker: StallTracker, look: Look, source: WatchedSource) -> None:
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
            who = source.requests.holders({s.partition: s.last_stable_offset for s in began})
        except Exception as error:  # noqa: BLE001  (likewise)
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
