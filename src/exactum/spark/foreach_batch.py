"""The three guarantees as what ``foreachBatch`` takes: the one line that a user changes."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from exactum import events
from exactum.errors import ExactumError, SettingRefused
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.sink import Guarantee, Sink
from exactum.spark import query, running, watch
from exactum.spark.control.stream import ControlStream
from exactum.spark.event_log import listener
from exactum.spark.life import life, standby
from exactum.spark.life.handover import Handover

logger = logging.getLogger("exactum")

Control = ControlStream | Sequence[ControlStream]


def exactly_once(
    *sinks: Sink,
    dead_letters: Sink | None = None,
    decision_log: DecisionLog | str | Path | None = None,
    control: Control = (),
    on_event: events.Listener | None = None,
) -> ForeachBatch:
    """Every epoch becomes visible once in every sink, or in none, through any crash.

    Args:
        sinks: where each micro-batch goes; all of them under one decision. Each may have its own view of it
            (``rows=``); the source is read once for all.
        dead_letters: a sink for the rows that another one can never take, in the same epoch under the same
            decision (``protocol.sink.DEAD_LETTER_COLUMNS``); None: such a row stops the query with
            ``RowsRefused``.
        decision_log: where decisions are recorded; default ``<checkpointLocation>/exactum/decisions/``. A
            path (or ``file:`` URI) is a folder in which each query has its own, seen by every machine that
            may run the driver. An object with ``read``, ``decide``, ``prune`` and ``close`` is used as it is.
        control: a ``control_stream``, or several: rules that every task of an epoch sees in the same state.
        on_event: called with every event of the protocol (see ``exactum.events``), besides the log
            ``logging.getLogger("exactum")``. Must not block.

    Returns:
        What ``DataStreamWriter.foreachBatch`` takes. One object serves one query at a time, and any number
        of starts of it one after another.

    Raises:
        SettingRefused: no sink is given. Everything else is checked when the query's first batch runs.
    """
    return ForeachBatch(running.Targets(sinks, dead_letters), Guarantee.EXACTLY_ONCE, decision_log, control, on_event)


def at_least_once(
    *sinks: Sink,
    dead_letters: Sink | None = None,
    control: Control = (),
    on_event: events.Listener | None = None,
) -> ForeachBatch:
    """Every row is acknowledged by every sink before Spark goes on; a crash writes the batch again.

    Args and returns as ``exactly_once``; nothing is recorded, so there is no decision log.
    """
    return ForeachBatch(running.Targets(sinks, dead_letters), Guarantee.AT_LEAST_ONCE, None, control, on_event)


def at_most_once(
    *sinks: Sink,
    dead_letters: Sink | None = None,
    decision_log: DecisionLog | str | Path | None = None,
    control: Control = (),
    on_event: events.Listener | None = None,
) -> ForeachBatch:
    """A batch that was begun is never written again: a crash or a failing task loses rows, none is doubled.

    Args and returns as ``exactly_once``. A task that Spark tries again writes nothing. On a cluster the
    session needs ``spark.stage.maxConsecutiveAttempts=1``.
    """
    return ForeachBatch(running.Targets(sinks, dead_letters), Guarantee.AT_MOST_ONCE, decision_log, control, on_event)


class ForeachBatch:
    """Callable as ``(frame, batch_id)``, for ``DataStreamWriter.foreachBatch``.

    ``error`` is the exactum error with which the last run stopped, or None: Spark's
    ``query.exception()`` has it as text only, and its ``disposition`` says what may be done next.
    """

    def __init__(
        self,
        targets: running.Targets,
        guarantee: Guarantee,
        decision_log: DecisionLog | str | Path | None,
        control: Control,
        on_event: events.Listener | None,
    ) -> None:
        if not targets.sinks:
            raise SettingRefused(
                f"{guarantee.name.lower()}() was given no sink. Pass at least one, for example "
                'exactum.KafkaSink("totals", bootstrap_servers="localhost:9092").'
            )
        self.error: ExactumError | None = None
        self._targets = targets
        self._guarantee = guarantee
        self._decision_log = decision_log
        self._control = (control,) if isinstance(control, ControlStream) else tuple(control)
        self._listener = listener(on_event)
        self._run: running.RunOfQuery | None = None
        self._closer: Any = None
        standby.wait_for_turn()  # under a supervisor that has another one running

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Bring one micro-batch into every sink. Called by Spark, once for each batch, in order.

        Raises:
            ExactumError: see ``protocol.coordinator.Coordinator.run``; the query stops with it.
        """
        try:
            self._refuse_second_query(frame)
            self._batch(frame, batch_id)
        except ExactumError as error:
            self._tell(error, frame)
            logger.debug("the run stops with", exc_info=True)
            # What Spark shows of it is the printed traceback: our own frames would bury the message.
            raise error.with_traceback(None)  # noqa: B904

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        try:
            self._current_run(frame, batch_id).batch(frame, batch_id)
        except BaseException as error:
            if self._run is None or not self._run.may_leave_open:  # else the watch closes it, soon
                self._close()
            if isinstance(error, ExactumError):
                self.error = error
            raise

    def __reduce__(self) -> Any:
        # Spark Connect pickles what foreachBatch is given, to run it on the server.
        raise SettingRefused(query.connect_refusal())

    def _refuse_second_query(self, frame: DataFrame) -> None:
        """The run at hand, which may be in the middle of an epoch, is the first query's: it is left alone."""
        query_id, run = query.query_id_of(frame), self._run
        if run is not None and run.running.query_id != query_id and run.running.still_runs():
            raise SettingRefused(
                f"One {self._guarantee.name.lower()} object serves two running queries, "
                f"{run.running.query_id} and {query_id}. Make one for each query. Nothing of the second "
                "was written."
            )

    def _current_run(self, frame: DataFrame, batch_id: int) -> running.RunOfQuery:
        """The run that this batch belongs to: the one at hand, or a new one when the query was started again."""
        query_id = query.query_id_of(frame)
        if self._run is not None and self._run.running.still_runs():
            return self._run
        self._close()
        self.error = None
        self._run = running.start(
            frame,
            batch_id,
            query.find(frame, query_id),
            self._targets,
            self._guarantee,
            self._decision_log,
            self._control,
            self._listener,
        )
        self._closer = weakref.finalize(self, self._run.close)  # at the latest when Python ends
        self._hand_over(self._run)
        watch.over(self._run.running, self._run.idle, self._run.ended, self._closer)
        return self._run

    def _hand_over(self, run: running.RunOfQuery) -> None:
        """Give a supervisor what finishes a decided epoch without Spark, where there is a supervisor."""
        supervised = life.current()
        if supervised is None:
            return
        sinks, names = self._targets.all(), tuple(self._targets.names())
        decided = self._guarantee is Guarantee.EXACTLY_ONCE
        supervised.hand_over(
            run.running.query_id, Handover(run.running, sinks, names, self._decision_log) if decided else None
        )

    def _tell(self, error: ExactumError, frame: DataFrame) -> None:
        supervised = life.current()
        if supervised is not None and not supervised.stopping.is_set():
            supervised.tell_error(error, query.query_id_of(frame))

    def _close(self) -> None:
        """Close the run at hand, if any. Idempotent."""
        run, closer = self._run, self._closer
        self._run = self._closer = None
        if run is None or closer is None:
            return
        try:
            closer()
        except Exception as error:  # noqa: BLE001  (it must not hide why the run ended)
            logger.warning("%s: a connection could not be closed: %s", run.running, error)
