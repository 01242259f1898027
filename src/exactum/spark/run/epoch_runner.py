"""One run of a query under one guarantee: one micro-batch at a time, through its protocol into its
sinks.

Spark's micro-batch --EpochRunner.batch--> offsets read --protocol.run--> write job | drained
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import cached_property

from pyspark.sql import DataFrame

from exactum import events
from exactum.checkpoint import offset_log
from exactum.errors import EpochAborted, ExactumError
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import Completed, PreparedTransaction, rows_by_participant
from exactum.protocol.sink import Guarantee, WriteOrder
from exactum.spark.decoding.bad_records import BadRecords
from exactum.spark.epoch_listener import Batch
from exactum.spark.jvm.error import JvmError
from exactum.spark.query import Run
from exactum.spark.run.attending import Attending
from exactum.spark.run.delivery import DEAD_LETTERS
from exactum.spark.run.epoch_gate import EpochGate
from exactum.spark.run.epoch_write import EpochWrite
from exactum.spark.run.history import write_history
from exactum.spark.run.housekeeping import Duty
from exactum.spark.run.late_sweep import LateSweep
from exactum.spark.run.opened_sinks import OpenedSinks
from exactum.spark.run.small_epoch import partition_sizes
from exactum.spark.run.standing_epochs import StandingEpochs
from exactum.spark.source.bounds import all_initial_offsets
from exactum.spark.write import epoch_input, write_job
from exactum.spark.write.failure import thrown
from exactum.spark.write.write_job import Fresh
from exactum.spark.write.writing import Writing

logger = logging.getLogger("exactum")


class EpochRunner:
    """Everything that lives as long as one run of one query. Made by ``opening.open_run``."""

    def __init__(
        self,
        run: Run,
        protocol: Coordinator,
        sinks: OpenedSinks,
        *,
        standing_epochs: StandingEpochs,
        attending: Attending,
        bad_records: BadRecords,
        writing: Writing,
    ) -> None:
        self.run = run
        self._protocol = protocol
        self._sinks = sinks
        self._standing_epochs = standing_epochs
        self._attending = attending
        self._bad_records = bad_records
        self._dead_letters = sinks.dead_letter_plan()
        self._writing = writing
        self._late_sweep = LateSweep(protocol)
        attending.attends(self._late_sweep)
        attending.duties.append(self._late_sweep)
        self._last_batch_id: int | None = None
        self._working = threading.Lock()
        self._closed = False
        self._end_reported = False

    @cached_property
    def _write(self) -> EpochWrite:
        """Made with the first batch: only then Spark has planned the state."""
        decides = self.run.guarantee is Guarantee.EXACTLY_ONCE
        return EpochWrite(
            self._sinks,
            self.run.identity,
            self._writing,
            hashed=decides and self._standing_epochs.has_state(),
            count_once=self._bad_records.count_once,
        )

    @property
    def gate(self) -> EpochGate:
        """What lets no batch begin while it is shut."""
        return self._attending.gate

    @property
    def duties(self) -> Sequence[Duty]:
        """What is due now and then while the query lasts."""
        return self._attending.duties

    def batch(self, frame: DataFrame, batch_id: int) -> Completed:
        """Bring one micro-batch into every sink, or drain it where it stands already.

        Raises:
            EpochAborted: the query was stopped, and the run closed, before the batch began.
        """
        with self._working:
            if self._closed:
                raise EpochAborted(write_job.CANCELLED)
            return self._batch(frame, batch_id)

    def ended(self) -> None:
        """The query has ended. Its batch at hand goes on to its end or to Spark's cancelling it,
        and needs its connections for that: a decided epoch as long as its commit has time, which
        only its sinks know. Then sweep what its tasks leave.
        """
        with self._working:
            pass
        self._late_sweep.after_failure(lambda: self._closed)

    @property
    def may_leave_open(self) -> bool:
        """True where an epoch was abandoned: its tasks may still open transactions, which ``ended``
        sweeps.
        """
        return self._protocol.abandoned is not None

    def _batch(self, frame: DataFrame, batch_id: int) -> Completed:
        prepared: list[PreparedTransaction] = []

        def ready(order: WriteOrder) -> None:
            for listener in self._attending.listeners:
                listener.writing(batch, order)

        def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
            with epoch_input.named(offsets):
                prepared.extend(self._write.write(frame, order, Fresh(sizes, batch.first)))
                self._standing_epochs.wrote(self._write.fingerprint)
                if self._dead_letters is not None:
                    prepared.extend(
                        self._bad_records.write(frame, order, DEAD_LETTERS, self._dead_letters)
                    )
            return prepared

        read = self.run.read
        offsets = offset_log.source_offsets(read, batch_id, self.run.checkpoint)
        began = all_initial_offsets(read, len(offsets.end)) if batch_id == 0 else ()
        sizes = partition_sizes(offsets, began)
        records = None if sizes is None else sum(sizes)
        batch = Batch(batch_id, offsets, first=self._last_batch_id is None)
        for listener in self._attending.listeners:
            listener.begin(batch)
        self.run.emit(events.EpochBegan(*self.run.about(batch_id), records))
        completed = self._protocol.run(batch_id, offsets, write, ready)
        if not completed.written:
            self._standing_epochs.go_on(batch_id, completed.engine, frame)
        refused = rows_by_participant(prepared).get(DEAD_LETTERS, 0)
        if refused:
            self.run.emit(events.RowsDeadLettered(*self.run.about(batch_id), refused))
        for listener in self._attending.listeners:
            listener.done(batch, completed)
        self._prune(batch_id)
        self._last_batch_id = batch_id
        return completed

    def report_end(self, error: BaseException | None = None) -> None:
        """The run is over, with this error; without one it was stopped, or Spark has failed between
        two batches. Idempotent: the first call counts.
        """
        if self._end_reported:
            return
        self._end_reported = True
        failure = self.run.failure() if error is None else None
        error = error if failure is None else thrown(RuntimeError(failure))
        if isinstance(error, EpochAborted) and failure is None and self._is_over():
            how = ("", "", "")  # stop() ended the query before, and cut the micro-batch off
        elif error is not None:
            disposition = error.disposition.value if isinstance(error, ExactumError) else ""
            how = (type(error).__name__, disposition, str(error))
        else:
            how = ("", "", "") if failure is None else ("StreamingQueryException", "", failure)
        last = -1 if self._last_batch_id is None else self._last_batch_id
        self.run.emit(events.RunEnded(*self.run.about(last), *how))

    def _is_over(self) -> bool:
        try:
            return not self.run.still_runs()
        except (JvmError, OSError):  # nobody can tell
            return False

    def close(self) -> None:
        """Let go of every connection; what is open in the targets stays as it is."""
        self._closed = True
        self.report_end()
        write_history()
        try:
            self._attending.close()
        finally:
            try:
                self._protocol.close()
            finally:
                self._sinks.release_threads()

    def _prune(self, batch_id: int) -> None:
        below = batch_id - self.run.retained - 1
        if below <= 0:
            return
        try:
            self._protocol.prune(below)
        except Exception as error:  # noqa: BLE001  (the epoch stands; what is kept too long harms nobody)
            logger.warning("%s: old decision records could not be pruned: %s", self.run, error)
