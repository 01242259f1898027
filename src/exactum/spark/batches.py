"""What Spark calls with each micro-batch of one run of a query."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from exactum.errors import CheckpointRefused, EpochAborted, ExactumError, SettingRefused
from exactum.spark.open_queries import open_queries
from exactum.spark.query import Run
from exactum.spark.run.delivery import DeliverySettings
from exactum.spark.run.epoch_runner import EpochRunner
from exactum.spark.run.housekeeping import Housekeeping
from exactum.spark.supervised import process

logger = logging.getLogger("exactum")


class Batches:
    """The function that a query has as its ``foreachBatch``. Spark calls it with one batch after
    another; the first one waits until the run is open.

    ``error`` is that with which the query stopped, by itself; None: it runs, or was stopped.
    """

    def __init__(
        self,
        settings: DeliverySettings,
        interrupt: Callable[[], None] = lambda: None,
        check: Callable[..., None] = lambda frame, batch_id: None,
    ) -> None:
        """``interrupt`` cancels jobs that Spark leaves running when the query has ended. ``check``
        of (frame, batch_id=) raises what ends the query before a batch is written.
        """
        self.error: BaseException | None = None
        self._settings = settings
        self._interrupt = interrupt
        self._check = check
        self._decided_on = threading.Event()
        self._runner: EpochRunner | None = None
        self._closer: Any = None
        self._lock, self._closing = threading.Lock(), threading.Lock()
        self._last_batch_id: int | None = None

    def open(self, runner: EpochRunner) -> None:
        """From here on batches are written."""
        self._runner = runner
        self._closer = weakref.finalize(self, runner.close)  # at the latest when Python ends
        open_queries.opened(runner.run.run_id, runner.gate)
        supervised = process.current()
        if supervised is not None:
            supervised.report_run(runner.run.query_id)
        Housekeeping(
            runner.run,
            runner.duties,
            refused=partial(self._refused_between, runner),
            ended=partial(self._over, runner),
            close=self._close,
        ).start()
        self._decided_on.set()

    def _over(self, runner: EpochRunner) -> None:
        open_queries.leave(runner.run.run_id)
        self._interrupt()
        runner.ended()

    def refuse(self, error: BaseException) -> None:
        """No run is opened: Spark gets this error for the batch that it may have planned."""
        self.error = error
        self._decided_on.set()

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

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Bring one micro-batch into every sink.

        Raises:
            ExactumError: see ``protocol.coordinator.Coordinator.run``; the query stops with it.
        """
        self._decided_on.wait()
        runner = self._runner
        if runner is None or self.error is not None:
            raise self._refused(batch_id)
        self._refuse_second(batch_id)
        try:
            self._check(frame, batch_id=batch_id)
            runner.batch(frame, batch_id)
        except BaseException as error:  # noqa: BLE001  (raised again)
            self._ended(runner, error)
            # What Spark shows of it is the printed traceback: our own frames would bury the
            # message.
            raise error.with_traceback(None)  # noqa: B904

    def _refuse_second(self, batch_id: int) -> None:
        """
        Raises:
            SettingRefused: the batch had its call. The second would find the first one's record,
                and take it for its own.
        """
        with self._lock:
            last, self._last_batch_id = self._last_batch_id, batch_id
        if last is not None and batch_id <= last:
            raise SettingRefused(
                "CALL_TWICE",
                f"exactum was called a second time for micro-batch {batch_id}. One micro-batch is "
                "one call, for one record decides it: give all sinks to one call, and each that "
                "takes a part of the batch its own rows=. Nothing of this second call was written.",
            )

    def _refused(self, batch_id: int) -> BaseException:
        """Spark must never take a batch for done that was not written."""
        if self._runner is None or self.error is None:
            return self.error or EpochAborted("The run was not opened. Nothing was written.")
        error = SettingRefused(
            "ERROR_CAUGHT",
            f"A function of yours caught exactum's error of micro-batch {self._last_batch_id}, so "
            "Spark has logged that batch as done: its rows are missing.\nNothing of micro-batch "
            f"{batch_id} was written, and Spark may log it as well. Let errors reach Spark, and "
            f"accept the loss ('exactum accept').\nThe error was: {self.error}",
        )
        logger.error("%s", error)  # this one may be caught as well
        self._runner.run.stop()
        return error

    def _ended(self, runner: EpochRunner, error: BaseException) -> None:
        is_stop = isinstance(error, EpochAborted) and runner.run.was_stopped()
        if not is_stop:  # the script's own stop() cuts a micro-batch off, which is no failure
            self._keep(runner.run, error)
        runner.report_end(error)
        self.finish()
        logger.debug("the run stops with", exc_info=error)

    def _refused_between(self, runner: EpochRunner, error: CheckpointRefused) -> None:
        """Between two batches, what would refuse the next one ends the query now."""
        self._keep(runner.run, error)
        runner.report_end(error)
        runner.run.fail(error)

    def _keep(self, run: Run, error: BaseException) -> None:
        self.error = error
        supervised = process.current()
        if (
            isinstance(error, ExactumError)
            and supervised is not None
            and not supervised.stopping.is_set()
        ):
            supervised.report_error(error, run.query_id)
