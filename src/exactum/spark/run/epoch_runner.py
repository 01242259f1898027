"""One run of a query under one guarantee: one micro-batch at a time, through its protocol into its
sinks.

Spark's micro-batch --EpochRunner.batch--> offsets read --protocol.run--> write job | drained
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from pyspark.sql import DataFrame

from exactum import events
from exactum.checkpoint import offset_log
from exactum.checkpoint.decision_place import open_log, shown_place
from exactum.errors import EpochAborted, ExactumError, SettingRefused
from exactum.protocol.at_least_once import AtLeastOnce
from exactum.protocol.at_most_once import AtMostOnce
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.epoch_protocol import Completed, EpochProtocol
from exactum.protocol.model import PreparedTransaction, new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun, WriteOrder
from exactum.spark import query
from exactum.spark.decoding.bad_records import BadRecords
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.jvm.collecting import Tasks
from exactum.spark.jvm.error import JvmError
from exactum.spark.master import is_one_process
from exactum.spark.query import RunningQuery
from exactum.spark.run.arrow_lanes import ArrowLanes
from exactum.spark.run.delivery import DEAD_LETTERS, Delivery
from exactum.spark.run.epoch_listeners import close_listeners, listeners
from exactum.spark.run.former_sinks import FormerSinks
from exactum.spark.run.history import keep_history
from exactum.spark.run.moved_log import refuse_moved_log
from exactum.spark.run.opened_sinks import OpenedSinks, check_columns
from exactum.spark.run.run_start import RunStart
from exactum.spark.run.shared_places import refuse_checkpoint_within
from exactum.spark.run.small_epoch import SmallEpochs, partition_sizes
from exactum.spark.run.standing_epoch import StandingEpochs
from exactum.spark.run.waiting_queries import WAITING
from exactum.spark.run_context import RunContext
from exactum.spark.supervised.handover import Columns
from exactum.spark.write import epoch_input, write_job
from exactum.spark.write.packing import Packing
from exactum.spark.write.view import views
from exactum.spark.write.view_jobs import ViewJobs

logger = logging.getLogger("exactum")

IDLE_SWEEPS_S = (2.0, 6.0, 15.0)
"""How long after a quiet stream's last epoch its leftovers are looked for."""
FAILED_SWEEPS_S = (1.0, 3.0)
"""How long after a failed query was found to have ended its leftovers are looked for: a worker
whose task Spark has cancelled may take its cut-off input for a whole one, and goes on until it
finds nobody there to tell of what it has prepared."""


class EpochRunner:
    """Everything that lives as long as one run of one query. Made by ``start``."""

    def __init__(
        self,
        context: RunContext,
        protocol: EpochProtocol,
        sinks: OpenedSinks,
        standing_epochs: StandingEpochs,
        epoch_listeners: Sequence[EpochListener],
    ) -> None:
        self.query = context.query
        self._context = context
        self._protocol = protocol
        self._sinks = sinks
        self._standing_epochs = standing_epochs
        self._listeners = tuple(epoch_listeners)
        self._bad_records = next(one for one in epoch_listeners if isinstance(one, BadRecords))
        self._dead_letters = sinks.dead_letter_plan()
        self._lanes = ArrowLanes.of(context)
        self._jobs = ViewJobs(
            views(sinks.targets.sinks),
            sinks.writers,
            sinks.columns,
            context.run,
            self._dead_letters,
            packing=Packing(context.session, context.query.execution),
            own_reads=self._lanes,
            count_once=self._bad_records.read_again,
            hashed=context.run.guarantee is Guarantee.EXACTLY_ONCE and standing_epochs.has_state(),
        )
        self._small_epochs = SmallEpochs(context.query)
        self._last_batch: tuple[int, float] | None = None  # batch id, and when it was done
        self._has_written = False
        self._sweeps = 0
        self._working = threading.Lock()
        self._closed = False
        self._end_told = False

    @property
    def columns(self) -> tuple[Columns, ...]:
        """What each sink writes, in order."""
        return self._sinks.columns

    def batch(
        self, frame: DataFrame, batch_id: int, before_decision: Callable[[], None]
    ) -> Completed:
        """Bring one micro-batch into every sink, or drain it where it stands already.

        ``before_decision`` is called when everything is prepared and may refuse by raising.

        Raises:
            EpochAborted: the query was stopped, and the run closed, before the batch began.
        """
        with self._working:
            if self._closed:
                raise EpochAborted(write_job.CANCELLED)
            return self._batch(frame, batch_id, before_decision)

    def ended(self) -> None:
        """The query has ended. Its batch at hand goes on to its end or to Spark's cancelling it,
        and needs its connections for that: a decided epoch as long as its commit has time, which
        only its sinks know. Then sweep what its tasks leave.
        """
        with self._working:
            pass
        if self._protocol.abandoned is None:
            return
        began_s = time.monotonic()
        for after_s in FAILED_SWEEPS_S:
            time.sleep(max(0.0, began_s + after_s - time.monotonic()))
            if not self._closed:  # by a next start, which sweeps
                self._protocol.sweep_own(self._protocol.abandoned)

    @property
    def may_leave_open(self) -> bool:
        """True where an epoch was abandoned: its tasks may still open transactions, which ``ended``
        sweeps.
        """
        return self._protocol.abandoned is not None

    def _batch(
        self, frame: DataFrame, batch_id: int, before_decision: Callable[[], None]
    ) -> Completed:
        prepared: list[PreparedTransaction] = []

        def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
            if not self._has_written:
                self._standing_epochs.begin_anew()
            with epoch_input.named(offsets):
                written = self._jobs.run(frame, order, lambda whole: self._tasks(whole, sizes))
                self._standing_epochs.wrote(written.fingerprint)
                prepared.extend(written.prepared)
                if self._dead_letters is not None:
                    prepared.extend(
                        self._bad_records.write(frame, order, DEAD_LETTERS, self._dead_letters)
                    )
            before_decision()
            return prepared

        offsets = offset_log.source_offsets(self._context.read, batch_id, self.query.checkpoint)
        sizes = partition_sizes(offsets)
        records = sum(sizes) if offsets.start else None
        self._context.emit(events.EpochBegan(*self._context.about(batch_id), records))
        batch = Batch(batch_id, offsets, first=self._last_batch is None)
        for listener in self._listeners:
            listener.begin(batch)
        completed = self._protocol.run(batch_id, offsets, write)
        self._has_written |= completed.written
        if not completed.written:
            self._standing_epochs.go_on(batch_id, completed.engine, frame)
        refused = sum(p.rows for p in prepared if p.participant == DEAD_LETTERS)
        if refused:
            self._context.emit(events.RowsDeadLettered(*self._context.about(batch_id), refused))
        for listener in self._listeners:
            listener.done(batch, completed)
        self._prune(batch_id)
        self._last_batch, self._sweeps = (batch_id, time.monotonic()), 0
        return completed

    def _tasks(self, frame: DataFrame, sizes: Sequence[int]) -> Tasks:
        """Of what is written, as a small epoch where it is one. Not in a run's first batch, which
        somebody waits for.
        """
        if self._last_batch is None:
            return Tasks()
        return self._small_epochs.tasks(frame, sizes)

    def idle(self) -> None:
        """Called now and then while the query waits, for the listeners and for late leftovers."""
        for listener in self._listeners:
            listener.idle()
        self._sweep_late()

    def _sweep_late(self) -> None:
        """Abort what a late task has left open, a few times an epoch.

        Spark kills the losers of speculation within seconds of the winner's end.
        """
        if self._last_batch is None:
            return
        batch_id, done_s = self._last_batch
        if (
            self._sweeps < len(IDLE_SWEEPS_S)
            and time.monotonic() - done_s >= IDLE_SWEEPS_S[self._sweeps]
        ):
            self._sweeps += 1
            self._protocol.sweep_own(batch_id)

    def tell_end(self, error: BaseException | None = None) -> None:
        """The run is over, with this error or because it was stopped. Idempotent: the first call
        tells.
        """
        if self._end_told:
            return
        self._end_told = True
        if isinstance(error, EpochAborted) and self._is_over():
            error = None  # stop() ended the query before, and cut the micro-batch off
        self._context.emit(
            events.RunEnded(
                *self._context.about(-1 if self._last_batch is None else self._last_batch[0]),
                "" if error is None else type(error).__name__,
                error.disposition.value if isinstance(error, ExactumError) else "",
                "" if error is None else str(error),
            )
        )

    def _is_over(self) -> bool:
        try:
            return not self.query.still_runs()
        except (JvmError, OSError):  # nobody can tell
            return False

    def close(self) -> None:
        """Let go of every connection; what is open in the targets stays as it is."""
        self._closed = True
        self.tell_end()
        if self._lanes is not None:
            self._lanes.close()
        try:
            close_listeners(self._listeners)
        finally:
            try:
                self._protocol.close()
            finally:
                self._sinks.release_threads()

    def _prune(self, batch_id: int) -> None:
        below = batch_id - self.query.retained - 1
        if below <= 0:
            return
        try:
            self._protocol.prune(below)
        except Exception as error:  # noqa: BLE001  (the epoch stands; what is kept too long harms nobody)
            logger.warning("%s: old decision records could not be pruned: %s", self.query, error)


def start(
    frame: DataFrame, batch_id: int, running: RunningQuery, delivery: Delivery
) -> EpochRunner:
    """Check everything that can be checked before the first row, connect, and return the run.

    ``frame`` is the batch ``batch_id``, the first one that this run is asked for.

    Raises:
        Refused: the query, a sink, its settings or the frame's columns cannot hold the guarantee.
        Unavailable: a target did not answer.
    """
    query.refuse_unsafe(running)
    if delivery.guarantee is Guarantee.AT_MOST_ONCE:
        refuse_repeated_stages(frame, running)
    run = QueryRun(running.query_id, new_incarnation(), delivery.guarantee)
    read = query.reader_of(frame, running)
    context = RunContext(frame.sparkSession, running, run, batch_id, delivery.emit, read)
    WAITING.begun(running.run_id)
    keep_history(context.session, running.query_id, running.folder)
    with ExitStack() as undo:
        run_start = RunStart(context)
        attending = [*listeners(context, delivery.control), run_start]
        undo.callback(close_listeners, attending)
        attending.append(
            BadRecords(context, dead_letters=delivery.targets.dead_letters is not None)
        )
        columns = check_columns(
            frame, delivery.targets
        )  # rows= may ask a control stream for its rules
        log = (
            None
            if delivery.guarantee is Guarantee.AT_LEAST_ONCE
            else open_log(running, delivery.decision_log)
        )
        place = shown_place(delivery.decision_log)
        if log is not None:
            undo.callback(log.close)
            refuse_moved_log(context, log, place)
        sinks = OpenedSinks(delivery.targets, run, columns)
        undo.callback(sinks.close)
        if running.folder is not None:
            refuse_checkpoint_within(sinks.each, os.path.realpath(running.folder))
        run_start.opened(sinks)
        former = FormerSinks(context, sinks, place)
        attending.append(former)
        standing_epochs = StandingEpochs(context)
        protocol: EpochProtocol
        if log is None:
            protocol = AtLeastOnce(run, participants=sinks.participants, on_event=context.emit)
        elif delivery.guarantee is Guarantee.AT_MOST_ONCE:
            protocol = AtMostOnce(run, log, participants=sinks.participants, on_event=context.emit)
        else:
            protocol = Coordinator(
                run,
                sinks.participants,
                log,
                former=former.reached(),
                engine=standing_epochs.record,
                on_event=run_start.listen,
                parallel=sinks.parallel,
            )
        undo.pop_all()
    return EpochRunner(context, protocol, sinks, standing_epochs, attending)


def refuse_repeated_stages(frame: DataFrame, running: RunningQuery) -> None:
    """At most once cannot tell a repeated stage's tasks from first tries: Spark does not tell
    Python.

    Stages repeat when another machine's shuffle files are lost, so a local master needs no setting.

    Raises:
        SettingRefused: the cluster may repeat a stage.
    """
    key = "spark.stage.maxConsecutiveAttempts"
    if is_one_process(running.master):
        return
    if frame.sparkSession.sparkContext.getConf().get(key, "4") != "1":
        raise SettingRefused(
            f"{running} is at most once on the cluster {running.master}, where Spark repeats a "
            "stage whose shuffle files are lost and so would write rows twice. Start the session "
            f"with {key}=1. Nothing was written."
        )
