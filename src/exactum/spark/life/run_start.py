"""Says once for each run what it is and where it goes on: the event ``RunStarted``."""

from __future__ import annotations

from exactum import events
from exactum.protocol.coordinator import Completed
from exactum.protocol.sink import QueryRun
from exactum.spark.attendant import Batch
from exactum.spark.query import RunningQuery


class RunStart:
    """An attendant that also listens: what recovery did is known from the events that it emits.

    ``listen`` passes every event on, and emits ``RunStarted`` right after the door is closed; under a guarantee that
    closes none, before the first batch.
    """

    def __init__(self, running: RunningQuery, run: QueryRun, emit: events.Listener, *, has_door: bool) -> None:
        self._running = running
        self._run = run
        self._emit = emit
        self._has_door = has_door
        self._first: Batch | None = None
        self._redelivered: list[int] = []
        self._swept = 0
        self._said = False

    def listen(self, event: events.Event) -> None:
        self._emit(event)
        if self._said:
            return
        match event:
            case events.EpochRedelivered():
                self._redelivered.append(event.batch_id)
            case events.LeftoversSwept():
                self._swept += event.transactions
            case events.DoorClosed():
                self._say(event.batch_id)

    def begin(self, batch: Batch) -> None:
        """See the port."""
        if not batch.first:
            return
        self._first = batch
        if not self._has_door:
            self._say(batch.batch_id)

    def _say(self, batch_id: int) -> None:
        self._said = True
        offsets = self._first.offsets if self._first is not None else None
        is_next = self._first is not None and batch_id > self._first.batch_id
        self._emit(
            events.RunStarted(
                self._run.query_id,
                batch_id,
                self._run.incarnation,
                run_id=self._running.run_id,
                name=self._running.name,
                guarantee=self._run.guarantee.value,
                checkpoint=self._running.checkpoint,
                offsets=() if offsets is None else offsets.end if is_next else offsets.start,
                redelivered=tuple(self._redelivered),
                swept=self._swept,
            )
        )

    def done(self, batch: Batch, completed: Completed) -> None:
        """See the port."""

    def idle(self) -> None:
        """See the port."""

    def close(self) -> None:
        """See the port."""
