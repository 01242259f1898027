"""What Spark calls with each micro-batch of a run, and how one comes through the protocol into the
sinks.

    Spark --Batches--> the run is open --EpochRunner.batch--> offsets --protocol.run--> write job
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

from pyspark.sql import DataFrame

from exactum import events
from exactum.checkpoint import offset_log
from exactum.checkpoint.offset_log import name_of
from exactum.errors import HALTING, CheckpointRefused, EpochAborted, ExactumError, SettingRefused
from exactum.monitor.recorder import RECORDER
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import (
    Completed,
    PreparedTransaction,
    SourceOffsets,
    rows_by_participant,
)
from exactum.protocol.sink import DEAD_LETTERS, Guarantee, WriteOrder
from exactum.spark.decoding.bad_records import BadRecords
from exactum.spark.live import SourceRange, ranges_of
from exactum.spark.open_queries import open_queries, script_is_over
from exactum.spark.query import Batch, Run
from exactum.spark.run.committed_epochs import CommittedEpochs
from exactum.spark.run.epoch_gate import EpochGate
from exactum.spark.run.housekeeping import Attending, Housekeeping, Tidying
from exactum.spark.run.opened_sinks import EpochWrite, OpenedSinks
from exactum.spark.source.bounds import initial_offsets
from exactum.spark.supervised import process
from exactum.spark.write.failure import thrown
from exactum.spark.write.write_job import CANCELLED, Jobs, in_our_words

logger = logging.getLogger("exactum")


class EpochRunner:
    """Everything that lives as long as one run of one query. Made by ``opening.open_run``."""

    def __init__(
        self,
        run: Run,
        protocol: Coordinator,
        sinks: OpenedSinks,
        attending: Attending,
        *,
        committed_epochs: CommittedEpochs,
        bad_records: BadRecords,
        jobs: Jobs,
    ) -> None:
        self.run = run
        self.attending = attending
        self._protocol = protocol
        self._sinks = sinks
        self._committed_epochs = committed_epochs
        self._bad_records = bad_records
        self._jobs = jobs
        self._last: Batch | None = None
        self._working = threading.Lock()
        self._tidying = Tidying(run, protocol, self._working)
        attending.attends(self._tidying)
        attending.duties.append(self._tidying)
        self._closed = False
        self._end_reported = False

    @property
    def gate(self) -> EpochGate:
        """What lets no batch begin while it is shut."""
        return self.attending.gate

    @property
    def may_leave_open(self) -> bool:
        """True where an epoch was abandoned: its tasks may still open transactions, which ``ended``
        sweeps.
        """
        return self._protocol.abandoned is not None

    @cached_property
    def _write(self) -> EpochWrite:
        """Made with the first batch: only then Spark has planned the state."""
        decides = self.run.guarantee is Guarantee.EXACTLY_ONCE
        return EpochWrite(
            self._sinks,
            self.run.identity,
            self._jobs,
            hashed=decides and self._committed_epochs.has_state(),
            count_once=self._bad_records.count_once,
            by_user=self.run.by_user,
        )

    def batch(self, frame: DataFrame, batch_id: int) -> Completed:
        """Bring one micro-batch into every sink, or drain it where it stands already.

        Raises:
            EpochAborted: the query was stopped, and the run closed, before the batch began.
        """
        prepared: list[PreparedTransaction] = []

        def ready(order: WriteOrder) -> None:
            for listener in listeners:
                listener.writing(batch)

        def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
            with in_our_words(lambda: input_of(batch.ranges)):
                prepared.extend(self._write.write(frame, order, batch))
                self._committed_epochs.wrote(self._write.fingerprint)
                if self._sinks.dead_letters is not None:
                    prepared.extend(
                        self._bad_records.write(
                            frame,
                            order,
                            self._sinks.dead_letters,
                            miscounted=self._write.is_kept,
                        )
                    )
            return prepared

        with self._working:
            if self._closed:
                raise EpochAborted(CANCELLED)
            read, last = self.run.read, self._last
            before = last.offsets if last is not None and last.batch_id == batch_id - 1 else None
            offsets = offset_log.source_offsets(read, batch_id, self.run.checkpoint, before)
            _refuse_other_plan(self.run, batch_id, offsets)
            initial = initial_offsets(self.run, len(offsets.end)) if batch_id == 0 else ()
            batch = Batch(batch_id, offsets, last is None, ranges_of(offsets, initial))
            listeners = self.attending.of(batch)
            for listener in listeners:
                listener.begin(batch)
            records = None if batch.sizes is None else sum(batch.sizes)
            self.run.emit(events.EpochBegan(*self.run.about(batch_id), records))
            completed = self._protocol.run(batch_id, offsets, write, ready)
            if not completed.written:
                for listener in listeners:
                    listener.redelivered(batch)
                with in_our_words(lambda: STANDS):
                    self._committed_epochs.go_on(batch_id, completed.engine, frame)
            refused = rows_by_participant(prepared).get(DEAD_LETTERS, 0)
            if refused:
                self.run.emit(events.RowsDeadLettered(*self.run.about(batch_id), refused))
            for listener in listeners:
                listener.done(batch, completed)
            self._last = batch
            return completed

    def ended(self) -> None:
        """The query has ended. Its batch at hand goes on to its end or to Spark's cancelling it,
        and needs its connections for that: a decided epoch as long as its commit has time, which
        only its sinks know. Then sweep what its tasks leave.
        """
        with self._working:
            pass
        self._tidying.after_failure(lambda: self._closed)

    def report_end(self, error: BaseException | None = None) -> None:
        """The run is over, with this error; without one it was stopped, or Spark has failed between
        two batches. Idempotent: the first call counts.
        """
        if self._end_reported:
            return
        self._end_reported = True
        # What cuts a micro-batch off is stop(), the end of the script, or the failure of the query:
        # the last of these is the end.
        with_script = ends_with_script(error)
        is_cut = isinstance(error, EpochAborted) or with_script
        failure = self.run.failure() if error is None or is_cut else None
        is_stop = is_cut and failure is None and self.run.was_stopped()
        if with_script and failure is None and not is_stop:
            how = ("", "", SCRIPT_ENDED)
        else:
            how = how_it_ended(None if is_stop else error, failure)
        last = -1 if self._last is None else self._last.batch_id
        is_end = not any(how) and self.run.has_read_all(completed=self._last is not None)
        self.run.emit(events.RunEnded(*self.run.about(last), *how, is_end))

    def close(self) -> None:
        """Let go of every connection; what is open in the targets stays as it is."""
        self._closed = True
        self.report_end()
        # Who sees that the run is over, by its file, reads in the history how it ended.
        RECORDER.flush()
        try:
            self.attending.close()
        finally:
            try:
                self._protocol.close()
            finally:
                self._sinks.release_threads()


def _refuse_other_plan(run: Run, batch_id: int, offsets: SourceOffsets) -> None:
    """What is on record is what the file says, and what is written is what this driver has planned.
    Another driver that planned the batch in the same moment may have put its file in the place of
    ours: Spark looks, and then renames (CheckpointFileManager.scala), and S3A copies for as long.

    Raises:
        EpochAborted: the two differ.
    """
    planned = run.live.end_offsets()
    # Of a stream that the query reads twice Spark keeps one end: that of its last line.
    last = {one.same_as: end for one, end in zip(run.sources, offsets.end, strict=False)}
    ends = {end for end in last.values() if end is not None}
    if planned is not None and set(map(offset_log.canonical, planned)) != ends:
        raise EpochAborted(
            f"Micro-batch {batch_id} was planned up to {', '.join(sorted(planned))}, and "
            f"{run.checkpoint}/{offset_log.OFFSETS}/{batch_id} says {', '.join(sorted(ends))}: "
            "another driver has planned it as well.\nNothing of it was written here. Start the "
            "query once: it goes on from that file."
        )


class Batches:
    """The function that a query has as its ``foreachBatch``. Spark calls it with one batch after
    another; the first one waits until the run is open.

    ``error`` is that with which the query stopped, by itself; None: it runs, or was stopped.
    """

    def __init__(
        self,
        interrupt: Callable[[], object] = lambda: None,
        check: Callable[[DataFrame, int], None] | None = None,
    ) -> None:
        """``interrupt`` cancels jobs that Spark leaves running when the query has ended. ``check``
        of (frame, batch id) raises what ends the query before a batch is written.
        """
        self.error: BaseException | None = None
        self._interrupt = interrupt
        self._check = check
        self._decided_on = threading.Event()
        self._run: Run | None = None
        self._runner: EpochRunner | None = None
        self._closer: Any = None
        self._lock, self._closing = threading.Lock(), threading.Lock()
        self._last_batch_id: int | None = None

    def open(self, runner: EpochRunner) -> None:
        """From here on batches are written."""
        self._run, self._runner = runner.run, runner
        self._closer = weakref.finalize(self, runner.close)  # at the latest when Python ends
        open_queries.gates[runner.run.run_id] = runner.gate
        supervised = process.current()
        if supervised is not None:
            supervised.report_run(runner.run.query_id)
        Housekeeping(
            runner.run,
            runner.attending.duties,
            refused=partial(self._refused_between, runner),
            ended=partial(self._over, runner),
            close=self._close,
        ).start()
        self._decided_on.set()

    def refuse(self, error: BaseException, run: Run | None = None) -> None:
        """No run is opened: Spark gets this error for the batch that it may have planned. ``run``:
        it should have begun with the batch at hand, whose caller may catch the error.
        """
        if not isinstance(error, Exception):  # Ctrl-C, which Py4J's thread would die of, unanswered
            error = EpochAborted(CANCELLED)
        self.error, self._run = error, run
        self._last_batch_id = None if run is None else run.first_batch_id
        self._decided_on.set()

    def still_runs(self) -> bool:
        """Whether its run, opened or refused, has not ended."""
        return self._run is not None and self._run.still_runs()

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Bring one micro-batch into every sink.

        Raises:
            ExactumError: see ``protocol.coordinator.Coordinator.run``; the query stops with it.
        """
        self._decided_on.wait()
        runner = self._runner
        if runner is None or self.error is not None:
            raise self._refused(batch_id)
        with self._lock:
            last, self._last_batch_id = self._last_batch_id, batch_id
        if last is not None and batch_id <= last:  # it would take the first call's record for its
            raise SettingRefused(
                "CALL_TWICE",
                f"exactum was called a second time for micro-batch {batch_id}. One micro-batch is "
                "one call, for one record decides it: give all sinks to one call, and each that "
                "takes a part of the batch its own rows=. Nothing of this second call was written.",
            )
        try:
            if self._check is not None:
                self._check(frame, batch_id)
            runner.batch(frame, batch_id)
        except BaseException as error:
            is_stop = isinstance(error, EpochAborted) and runner.run.was_stopped()
            if not is_stop:  # the script's own stop() cuts a micro-batch off, which is no failure
                self._keep(runner.run, error)
            runner.report_end(error)
            self.finish()
            logger.debug("the run stops with", exc_info=error)
            # What Spark shows of it is the printed traceback: our own frames would bury the
            # message.
            raise error.with_traceback(None)  # noqa: B904

    def finish(self) -> None:
        """The query has ended: let go of everything, once the batch at hand is over. Idempotent.
        Where tasks may still open transactions, the housekeeping sweeps these first.
        """
        runner = self._runner
        if runner is None or runner.may_leave_open:
            return
        runner.ended()
        try:
            self._close()
        except Exception as error:  # noqa: BLE001  (the query has ended, whatever this is)
            logger.warning("%s: a connection could not be closed: %s", runner.run, error)

    def _close(self) -> None:
        """It is closed when this returns, whoever closes it."""
        with self._closing:
            self._closer()

    def _over(self, runner: EpochRunner) -> None:
        open_queries.gates.pop(runner.run.run_id, None)
        self._interrupt()
        runner.ended()

    def _refused(self, batch_id: int) -> BaseException:
        """Spark must never take a batch for done that was not written."""
        is_again = self._runner is None and batch_id == self._last_batch_id
        if self._run is None or self.error is None or is_again:
            return self.error or EpochAborted("The run was not opened. Nothing was written.")
        error = SettingRefused(
            "ERROR_CAUGHT",
            f"A function of yours caught exactum's error of micro-batch {self._last_batch_id}, so "
            "Spark has logged that batch as done: its rows are missing.\nNothing of micro-batch "
            f"{batch_id} was written, and Spark may log it as well. Let errors reach Spark, and "
            f"accept the loss ('exactum accept').\nThe error was: {self.error}",
        )
        logger.error("%s", error)  # this one may be caught as well
        self._run.stop()
        return error

    def _refused_between(self, runner: EpochRunner, error: CheckpointRefused) -> None:
        """Between two batches, what would refuse the next one ends the query now."""
        self._keep(runner.run, error)
        runner.report_end(error)
        runner.run.fail(error)

    def _keep(self, run: Run, error: BaseException) -> None:
        self.error = error
        if isinstance(error, ExactumError) and not ends_with_script(error):
            tell_supervisor(run, error)


def tell_supervisor(run: Run, error: ExactumError) -> None:
    """The error ends the query, and may end the script."""
    supervised = process.current()
    if supervised is not None and not open_queries.stopping.is_set():
        supervised.report_error(error, run.query_id)


SCRIPT_ENDED = "it was cut off by the end of its script"


def ends_with_script(error: BaseException | None) -> bool:
    """Whether the script is over, and what fails now fails of that: all but what says of the query
    that it must not go on.
    """
    halts = isinstance(error, ExactumError) and error.disposition in HALTING
    return not halts and script_is_over()


def how_it_ended(error: BaseException | None, failure: str | None) -> tuple[str, str, str]:
    """What is told of the end of a run: the error, its disposition and the text; empty where it was
    stopped. ``failure`` is Spark's own, which says more than what it has cut off.
    """
    if failure is not None:
        carried = thrown(RuntimeError(failure))
        if carried is None:
            return ("StreamingQueryException", "", failure)
        error = carried
    if error is None:
        return ("", "", "")
    disposition = error.disposition.value if isinstance(error, ExactumError) else ""
    return (type(error).__name__, disposition, str(error))


STANDS = "The epoch stands in the sinks, and was to be computed once more for Spark's state alone."
SHOWN_MAX = 8


def input_of(ranges: Sequence[SourceRange]) -> str:
    """Which records of Kafka's partitions these are, half-open; empty where no source says so."""
    found: list[str] = []
    for own in ranges:
        for partition, last in sorted(own.ends.items()):
            first = own.begins.get(partition)
            if first is None:
                found.append(f"{name_of(partition)} before {last}")
            elif first < last:
                found.append(f"{name_of(partition)} from {first} to before {last}")
    if not found:
        return ""
    more = f", and {len(found) - SHOWN_MAX} more partitions" if len(found) > SHOWN_MAX else ""
    return f"The epoch reads these offsets: {', '.join(found[:SHOWN_MAX])}{more}."
