"""Says once for each run what it is and where it goes on: by the event ``RunStarted``, and in the
log.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence

from exactum import events
from exactum.protocol.model import Completed
from exactum.protocol.sink import Guarantee
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.event_log import report_to_watchers
from exactum.spark.query import ENDING_TRIGGERS, Run
from exactum.spark.run.opened_sinks import OpenedSinks
from exactum.spark.run.session_settings import SessionSettings
from exactum.spark.source.bounds import StartReport, stops_of

logger = logging.getLogger("exactum")

INTERVAL = re.compile(r"ProcessingTimeTrigger\((\d+)\)")
"""How Spark prints the trigger of a query that begins its micro-batches so many ms apart."""
VERSION_EVERY_MS = 2_000
"""A table whose versions come more often is worth a word."""
DAY_MS = 86_400_000


class RunStart(EpochListener):
    """What recovery did is known from the events that it emits: ``listen`` passes every event on,
    and emits ``RunStarted`` right after older runs are fenced.

    As a duty it says that the query waits for its first batch: onlookers would take it for dead.
    """

    every_s = 10.0
    trouble = "that it waits is not seen by onlookers"

    def __init__(self, run: Run) -> None:
        self._run = run
        self._settings = SessionSettings(run)
        self._report = StartReport(run)
        self._first: Batch | None = None
        self._redelivered: list[int] = []
        self._swept = 0
        self._timeouts_ms: dict[str, int] = {}
        self._said = False

    def opened(self, sinks: OpenedSinks) -> None:
        """The run's sinks are open. Called before anything is emitted."""
        if self._run.guarantee is Guarantee.EXACTLY_ONCE:
            self._timeouts_ms = sinks.timeouts_ms
        tables = [repr(name) for name, sink in sinks.each if sink.makes_versions]
        trigger = INTERVAL.fullmatch(self._run.trigger)
        if tables and trigger and int(trigger[1]) < VERSION_EVERY_MS:
            self._warn_of_versions(tables, int(trigger[1]))

    def _warn_of_versions(self, tables: Sequence[str], every_ms: int) -> None:
        often = (
            f"every {every_ms} ms" if every_ms else "as soon as there are rows, say once a second"
        )
        a_day = DAY_MS // (every_ms or 1_000)
        logger.warning(
            "%s commits %s: that makes %s versions a day of each of its tables (%s), with a file "
            "for every task and partition. Commits and readers get slow. Let it gather rows: "
            "trigger(processingTime='10 seconds') makes 8,640.",
            self._run,
            often,
            f"{a_day:,}",
            ", ".join(tables),
        )

    def listen(self, event: events.Event) -> None:
        self._run.emit(event)
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
        if batch.first:
            self._first = batch
            self._settings.compare()
            self._report.begins(batch)

    def done(self, batch: Batch, completed: Completed) -> None:
        if batch.first:
            self._settings.remember()

    def tend(self) -> None:
        if self._first is None:
            run = self._run
            report_to_watchers(
                events.QueryWaits(
                    *run.about(-1), run.run_id, run.name, run.checkpoint, run.live.doing()
                )
            )

    def _say(self, batch_id: int) -> None:
        self._said = True
        offsets = self._first.offsets if self._first is not None else None
        is_next = self._first is not None and batch_id > self._first.batch_id
        self._run.emit(
            events.RunStarted(
                *self._run.about(batch_id),
                run_id=self._run.run_id,
                name=self._run.name,
                guarantee=self._run.guarantee.value,
                checkpoint=self._run.checkpoint,
                offsets=() if offsets is None else offsets.end if is_next else offsets.start,
                redelivered=tuple(self._redelivered),
                swept=self._swept,
                timeouts_ms=self._timeouts_ms,
                trigger_ms=interval_ms(self._run.trigger),
                ends=ends_by_itself(self._run),
                inputs=inputs_of(self._run),
            )
        )


def interval_ms(trigger: str) -> int:
    """How far apart a query with this trigger begins its micro-batches; 0: at once."""
    found = INTERVAL.fullmatch(trigger)
    return int(found[1]) if found else 0


def inputs_of(run: Run) -> dict[str, str]:
    """What the query reads of Kafka, as it was asked for, and from which brokers."""
    found: dict[str, str] = {}
    for source in run.sources:
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


def ends_by_itself(run: Run) -> bool:
    """Whether the query ends when it has read what is there."""
    return run.trigger.startswith(ENDING_TRIGGERS) or bool(stops_of(run))
