"""Says once for each run what it is and where it goes on: the event ``RunStarted``."""

from __future__ import annotations

from exactum import events
from exactum.protocol.sink import Guarantee
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.run.opened_sinks import OpenedSinks
from exactum.spark.run_context import RunContext


class RunStart(EpochListener):
    """A listener that also listens: what recovery did is known from the events that it emits.

    ``listen`` passes every event on, and emits ``RunStarted`` right after older runs are fenced;
    under a guarantee that fences none, before the first batch.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._fences = context.run.guarantee is Guarantee.EXACTLY_ONCE
        self._first: Batch | None = None
        self._redelivered: list[int] = []
        self._swept = 0
        self._timeouts_ms: dict[str, int] = {}
        self._said = False

    def opened(self, sinks: OpenedSinks) -> None:
        """The run's sinks are open. Called before anything is emitted."""
        if self._fences:
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
        if not batch.first:
            return
        self._first = batch
        if not self._fences:
            self._say(batch.batch_id)

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
            )
        )
