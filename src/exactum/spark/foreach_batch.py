"""The three guarantees as what ``foreachBatch`` takes: the one line that a user changes."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from exactum import events
from exactum.checkpoint.staging_place import Places
from exactum.errors import CheckpointRefused, EpochAborted, ExactumError, SettingRefused
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.sink import Guarantee, Sink
from exactum.spark import arguments, query
from exactum.spark.batch_call import BatchCall, BatchCalls, ErrorCaught
from exactum.spark.control.stream import ControlStream
from exactum.spark.event_log import listener
from exactum.spark.final_error import FINAL_ERROR
from exactum.spark.no_start import refuse_while_importing
from exactum.spark.run import query_watch
from exactum.spark.run.delivery import Delivery, Targets
from exactum.spark.run.epoch_runner import EpochRunner
from exactum.spark.run.opening import open_run
from exactum.spark.run.waiting_queries import WAITING
from exactum.spark.supervised import process, standby
from exactum.spark.write.write_job import CANCELLED

logger = logging.getLogger("exactum")

_calls = BatchCalls()
"""Of this process: two objects in one query have nothing else in common."""

Control = ControlStream | Sequence[ControlStream]


def exactly_once(
    *sinks: Sink,
    dead_letters: Sink | None = None,
    decision_log: DecisionLog | str | Path | None = None,
    staging: str | Path | None = None,
    control: Control = (),
    on_event: events.Listener | None = None,
) -> ForeachBatch:
    """Every epoch becomes visible once in every sink, or in none, through any crash.

    Args:
        sinks: where each micro-batch goes; all of them under one decision. Each may have its own
            view of it (``rows=``); the source is read once for all.
        dead_letters: a sink for the rows that another one can never take, in the same epoch under
            the same decision (``protocol.sink.DEAD_LETTER_COLUMNS``); None: such a row stops the
            query with ``RowsRefused``.
        decision_log: where decisions are recorded; default
            ``<checkpointLocation>/exactum/decisions/``. A path (or ``file:`` URI) is a folder in
            which each query has its own, seen by every machine that may run the driver. Give the
            same one at each start: while a batch may be decided in another one, a start is refused
            (``CheckpointRefused``). An object
            with ``read``, ``decide``, ``prune`` and ``close`` is used as it is.
        staging: where rows of sinks that are no Kafka topics wait for the decision; default
            ``<checkpointLocation>/exactum/staging/``. A folder, or the URL of a prefix in an object
            store, that the driver and all executors share.
        control: a ``control_stream``, or several: rules that every task of an epoch sees in the
            same state.
        on_event: called with every event of the protocol (see ``exactum.events``), besides the log
            ``logging.getLogger("exactum")``. Must not block.

    Returns:
        What ``DataStreamWriter.foreachBatch`` takes. In a process that ``exactum run --standby``
        holds in reserve, it returns when the other process is gone, and the log says that it waits.
        One object serves one query at a time, and any number of starts of it one after another.
        Called from a function of yours, it is called once for each batch.

    Raises:
        SettingRefused: an argument is missing or is not what it must be. What needs Spark or a
            server is checked when the query's first batch runs.
    """
    return ForeachBatch(
        Targets(sinks, dead_letters),
        Guarantee.EXACTLY_ONCE,
        Places(decision_log, staging),
        control,
        on_event,
    )


def at_least_once(
    *sinks: Sink,
    dead_letters: Sink | None = None,
    decision_log: DecisionLog | str | Path | None = None,
    staging: str | Path | None = None,
    control: Control = (),
    on_event: events.Listener | None = None,
) -> ForeachBatch:
    """Every row is acknowledged by every sink before Spark goes on; a crash writes the batch again.

    No decisions are recorded. What an earlier run under ``exactly_once`` has decided is committed
    first, and what it left open is aborted.

    Args:
        sinks: as for ``exactly_once``.
        dead_letters: as for ``exactly_once``; default None.
        decision_log: as for ``exactly_once``; it says what earlier runs have decided.
        staging: as for ``exactly_once``.
        control: as for ``exactly_once``; default none.
        on_event: as for ``exactly_once``; default None.

    Returns:
        What ``DataStreamWriter.foreachBatch`` takes.

    Raises:
        SettingRefused: as ``exactly_once``.
    """
    return ForeachBatch(
        Targets(sinks, dead_letters),
        Guarantee.AT_LEAST_ONCE,
        Places(decision_log, staging),
        control,
        on_event,
    )


def at_most_once(
    *sinks: Sink,
    dead_letters: Sink | None = None,
    decision_log: DecisionLog | str | Path | None = None,
    staging: str | Path | None = None,
    control: Control = (),
    on_event: events.Listener | None = None,
) -> ForeachBatch:
    """A batch that was begun is never written again: a crash or a failing task loses rows, none is
    doubled.

    A task that Spark tries again writes nothing. On a cluster the session needs
    ``spark.stage.maxConsecutiveAttempts=1``.

    Args:
        sinks: as for ``exactly_once``.
        dead_letters: as for ``exactly_once``; default None.
        decision_log: as for ``exactly_once``; it records which batch was begun.
        staging: as for ``exactly_once``.
        control: as for ``exactly_once``; default none.
        on_event: as for ``exactly_once``; default None.

    Returns:
        What ``DataStreamWriter.foreachBatch`` takes.

    Raises:
        SettingRefused: as ``exactly_once``.
    """
    return ForeachBatch(
        Targets(sinks, dead_letters),
        Guarantee.AT_MOST_ONCE,
        Places(decision_log, staging),
        control,
        on_event,
    )


class ForeachBatch:
    """Callable as ``(frame, batch_id)``, for ``DataStreamWriter.foreachBatch``.

    ``error`` is the exactum error with which the last run stopped, or None: Spark's
    ``query.exception()`` has it as text only, and its ``disposition`` says what may be done next.
    """

    def __init__(
        self,
        targets: Targets,
        guarantee: Guarantee,
        places: Places,
        control: Control,
        on_event: events.Listener | None,
    ) -> None:
        call = guarantee.name.lower()
        arguments.checked_sinks(targets.sinks, targets.dead_letters, call)
        arguments.checked_decision_log(places.decision_log, call)
        arguments.checked_on_event(on_event, call)
        self.error: ExactumError | None = None
        streams = arguments.checked_control(control, call)
        self._delivery = Delivery(targets, guarantee, places, streams, listener(on_event))
        self._run: EpochRunner | None = None
        self._closer: Any = None
        self._at_hand = threading.Lock()  # two queries that were given this object may ask at once
        standby.wait_for_turn()  # under a supervisor that has another one running
        WAITING.watch()
        FINAL_ERROR.listen()

    @property
    def sinks(self) -> dict[str, Sink]:
        """By its participant's name each sink that it writes to, for ``--sinks`` of a command."""
        targets = self._delivery.targets
        return dict(zip(targets.names(), targets.all(), strict=True))

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Bring one micro-batch into every sink. Called by Spark, once for each batch, in order.

        Raises:
            ExactumError: see ``protocol.coordinator.Coordinator.run``; the query stops with it.
        """
        refuse_while_importing()
        try:
            self._batch(frame, batch_id)
        except ExactumError as error:
            self._tell(error, frame)
            FINAL_ERROR.remember(error)
            if isinstance(error, ErrorCaught):  # this one may be caught as well
                logger.error("%s", error)
            logger.debug("the run stops with", exc_info=True)
            # What Spark shows of it is the printed traceback: our own frames would bury the
            # message.
            raise error.with_traceback(None)  # noqa: B904

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        run, call = self._begun(frame, batch_id)
        try:
            run.batch(frame, batch_id, call.refuse_contested)
            call.done = True
        except BaseException as error:
            call.failed = str(error) or type(error).__name__
            run.report_end(error)
            with self._at_hand:
                # Where its tasks may still open transactions, the watch sweeps these and closes it,
                # soon.
                if self._run is run and not run.may_leave_open:
                    self._close()
            self._keep(error)
            raise

    def _begun(self, frame: DataFrame, batch_id: int) -> tuple[EpochRunner, BatchCall]:
        """The run that this batch belongs to, and this call as the only one for the batch.

        Raises:
            SettingRefused: the batch had its call, or the run at hand is another query's; that run
                is left alone.
            ExactumError: a new run could not be started.
        """
        with self._at_hand:
            running_query = self._running_query(frame)
            query.refuse_other_batch(frame, batch_id)
            try:
                call = _calls.take(running_query.run_id, batch_id)
            except ErrorCaught:
                running_query.stop()
                raise
            if self._run is not None and self._run.query is running_query:
                return self._run, call
            try:
                return self._started(frame, batch_id, running_query), call
            except BaseException as error:
                call.failed = str(error) or type(error).__name__
                self._close()
                self._keep(error)
                raise

    def _keep(self, error: BaseException) -> None:
        if isinstance(error, ExactumError):
            self.error = error

    def __reduce__(self) -> Any:
        # Spark Connect pickles what foreachBatch is given, to run it on the server.
        raise SettingRefused("SPARK_CONNECT", query.connect_refusal())

    def _running_query(self, frame: DataFrame) -> query.RunningQuery:
        """The run of Spark's query that this batch is of.

        Raises:
            SettingRefused: this object is at work for another query, which may be in the middle of
                an epoch.
        """
        query_id, run = query.query_id_of(frame), self._run
        if run is None or not run.query.still_runs():
            return query.find(frame, query_id)
        if run.query.query_id != query_id:
            raise SettingRefused(
                "OBJECT_SHARED",
                f"One {self._delivery.guarantee.name.lower()} object serves two running queries, "
                f"{run.query.query_id} and {query_id}. Make one for each query. Nothing of the "
                "second was written.",
            )
        return run.query

    def _started(
        self, frame: DataFrame, batch_id: int, running_query: query.RunningQuery
    ) -> EpochRunner:
        """A new run, when the query was started, or started again.

        Raises:
            EpochAborted: the query was stopped meanwhile, in words that Spark knows as its stop.
        """
        self._close()
        self.error = None
        supervised = process.current()
        if supervised is not None:
            supervised.await_stop(running_query.still_runs)
        if not running_query.still_runs():
            # Spark gives a batch yet to a query that is being stopped: a run would fence others.
            raise EpochAborted(CANCELLED)
        run = self._run = open_run(frame, batch_id, running_query, self._delivery)
        self._closer = weakref.finalize(self, run.close)  # at the latest when Python ends
        self._report_run(run)
        query_watch.over(run.query, partial(self._idle, run), run.ended, self._closer)
        return run

    def _idle(self, run: EpochRunner) -> None:
        """Between two batches. What would refuse the next one ends the query now: a quiet one may
        not have another for days.
        """
        try:
            run.idle()
        except CheckpointRefused as error:
            self._keep(error)
            FINAL_ERROR.remember(error)
            supervised = process.current()
            if supervised is not None:
                supervised.report_error(error, run.query.query_id)
            run.report_end(error)
            run.query.fail(error)

    def _report_run(self, run: EpochRunner) -> None:
        """Tell a supervisor where decisions are, where there is a supervisor."""
        supervised = process.current()
        if supervised is None:
            return
        log = self._delivery.places.decision_log
        is_decided = self._delivery.guarantee is Guarantee.EXACTLY_ONCE
        if is_decided and (log is None or isinstance(log, str | Path)):
            place = None if log is None else str(log)
            supervised.report_run(run.query.query_id, run.query.folder, place)
        else:
            supervised.report_run(run.query.query_id)

    def _tell(self, error: ExactumError, frame: DataFrame) -> None:
        supervised = process.current()
        if supervised is None or supervised.stopping.is_set():
            return
        # The script's own stop() cuts a micro-batch off, which is no failure.
        if not (isinstance(error, EpochAborted) and query.was_stopped(frame)):
            supervised.report_error(error, query.query_id_of(frame))

    def _close(self) -> None:
        """Close the run at hand, if any. Idempotent. The caller holds the lock."""
        run, closer = self._run, self._closer
        self._run = self._closer = None
        if run is None or closer is None:
            return
        try:
            closer()
        except Exception as error:  # noqa: BLE001  (it must not hide why the run ended)
            logger.warning("%s: a connection could not be closed: %s", run.query, error)
