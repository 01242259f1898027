"""Says once for each run what it is and where it goes on: the event ``RunStarted``."""

from __future__ import annotations

import json
import re
import time

from exactum import events
from exactum.protocol.sink import Guarantee
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.event_log import report_to_watchers
from exactum.spark.query import ENDING_TRIGGERS, RunningQuery
from exactum.spark.run.opened_sinks import OpenedSinks
from exactum.spark.run_context import RunContext
from exactum.spark.source.query_sources import sources_of
from exactum.spark.source.source_options import SourceOptions

WAITS_EVERY_S = 10.0
INTERVAL = re.compile(r"ProcessingTimeTrigger\((\d+)\)")
"""How Spark prints the trigger of a query that begins its micro-batches so many ms apart."""


class RunStart(EpochListener):
    """A listener that also listens: what recovery did is known from the events that it emits.

    ``listen`` passes every event on, and emits ``RunStarted`` right after older runs are fenced.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._first: Batch | None = None
        self._redelivered: list[int] = []
        self._swept = 0
        self._timeouts_ms: dict[str, int] = {}
        self._said = False
        self._waits_s = float("-inf")

    def opened(self, sinks: OpenedSinks) -> None:
        """The run's sinks are open. Called before anything is emitted."""
        if self._context.run.guarantee is Guarantee.EXACTLY_ONCE:
            self._timeouts_ms = sinks.timeouts_ms

    def listen(self, event: events.Event) -> None:
        self._context.emit(event)
        if self._said:
            return
        match event:
            case events.EpochRedelivered():
                self._redelivered.append(event.batch_id)
            case events.LeftoversSwept():
                self._swept += event.transactions
            case events.OlderRunsFenced():
                self._say(event.batch_id)

    def begin(self, batch: Batch) -> None:
        """See the base class."""
        if batch.first:
            self._first = batch

    def idle(self) -> None:
        """See the base class. Onlookers would take a query that has had no batch yet for dead."""
        if self._first is not None or time.monotonic() - self._waits_s < WAITS_EVERY_S:
            return
        self._waits_s = time.monotonic()
        query = self._context.query
        report_to_watchers(
            events.QueryWaits(
                *self._context.about(-1),
                query.run_id,
                query.name,
                query.checkpoint,
                query.live.doing(),
            )
        )

    def _say(self, batch_id: int) -> None:
        self._said = True
        offsets = self._first.offsets if self._first is not None else None
        is_next = self._first is not None and batch_id > self._first.batch_id
        self._context.emit(
            events.RunStarted(
                *self._context.about(batch_id),
                run_id=self._context.query.run_id,
                name=self._context.query.name,
                guarantee=self._context.run.guarantee.value,
                checkpoint=self._context.query.checkpoint,
                offsets=() if offsets is None else offsets.end if is_next else offsets.start,
                redelivered=tuple(self._redelivered),
                swept=self._swept,
                timeouts_ms=self._timeouts_ms,
                trigger_ms=interval_ms(self._context.query.trigger),
                ends=ends_by_itself(self._context.query),
                inputs=inputs_of(self._context.query),
            )
        )


def interval_ms(trigger: str) -> int:
    """How far apart a query with this trigger begins its micro-batches; 0: at once."""
    found = INTERVAL.fullmatch(trigger)
    return int(found[1]) if found else 0


def inputs_of(running: RunningQuery) -> dict[str, str]:
    """What the query reads of Kafka, as it was asked for, and from which brokers."""
    found: dict[str, str] = {}
    for source in sources_of(running):
        servers = source.option("kafka.bootstrap.servers") or ""
        asked = source.option("subscribePattern")
        topics = [asked] if asked is not None else (source.option("subscribe") or "").split(",")
        assigned = source.option("assign")
        if assigned is not None:
            topics = list(from_json_topics(assigned))
        found |= {topic.strip(): servers for topic in topics if topic and source.is_kafka}
    return found


def from_json_topics(assigned: str) -> tuple[str, ...]:
    """The topics of Spark's option ``assign``: ``{"orders":[0,1]}``."""
    try:
        return tuple(json.loads(assigned))
    except (ValueError, TypeError):
        return ()


def ends_by_itself(running: RunningQuery) -> bool:
    """Whether the query ends when it has read what is there."""
    if running.trigger.startswith(ENDING_TRIGGERS):
        return True
    sources = sources_of(running)
    return bool(sources) and all(
        SourceOptions.of(source.options).stop is not None for source in sources
    )
