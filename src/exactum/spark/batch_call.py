"""One call of exactum for one micro-batch: a second one would find the first one's record and take
it for its own.

A record says that a batch is done in every sink. It cannot say in which of two calls, so whoever
comes second drains its rows, and they are lost. A second call is refused before it does anything;
where both run at once, so is the first, before anything is decided.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from exactum.errors import SettingRefused

RUNS_MAX = 1_000
"""Runs whose last batch is remembered; the oldest is forgotten first."""
HOW = (
    "One micro-batch is one call, for one record decides it: give all sinks to one call, "
    "exactum.exactly_once(first_sink, second_sink), and each sink that takes a part of the batch "
    "its own rows=lambda batch: batch.where(...)."
)


class BatchCall:
    """The one call that a micro-batch of a run is given."""

    def __init__(self, batch_id: int) -> None:
        self.batch_id = batch_id
        self.contested = False
        self.done = False
        self.failed = ""
        """With which error; the query has to end with it."""

    def refuse_contested(self) -> None:
        """
        Raises:
            SettingRefused: another call for the same batch has come meanwhile; nothing is decided
                yet.
        """
        if self.contested:
            raise SettingRefused(
                "CALL_TWICE",
                f"exactum was called twice at once for micro-batch {self.batch_id}. {HOW} Nothing "
                "was written.",
            )


class ErrorCaught(SettingRefused):
    """The error of an earlier batch never reached Spark, which has logged that batch as done."""


class BatchCalls:
    """The last micro-batch of each run of a query that had its call. Safe to use from threads."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, BatchCall] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, run_id: str, batch_id: int) -> BatchCall:
        """The call of this batch, for the first one who asks.

        Raises:
            SettingRefused: it was taken.
            ErrorCaught: the run's last batch failed, and Spark went on all the same.
        """
        with self._lock:
            last = self._last.get(run_id)
            if last is not None and last.batch_id == batch_id:
                last.contested = True
                text = (
                    f"exactum was called a second time for micro-batch {batch_id}: "
                    f"{_of_the_first(last)} {HOW} Nothing of this second call was written."
                )
                last.failed = last.failed or text
                raise SettingRefused("CALL_TWICE", text)
            if last is not None and last.failed:
                raise ErrorCaught(
                    "ERROR_CAUGHT",
                    "The function given to foreachBatch caught exactum's error of micro-batch "
                    f"{last.batch_id}, so Spark has logged that batch as done: its rows are "
                    f"missing.\nNothing of micro-batch {batch_id} was written, and Spark may log "
                    "it as well. Let errors reach Spark, and accept the loss ('exactum accept').\n"
                    f"The error was: {last.failed}",
                )
            call = self._last[run_id] = BatchCall(batch_id)
            self._last.move_to_end(run_id)
            while len(self._last) > RUNS_MAX:
                self._last.popitem(last=False)
            return call


def _of_the_first(call: BatchCall) -> str:
    if call.done:
        return (
            "the first call has decided it, so its rows stand in its sinks and the batch is not "
            "run again. The rows of this second call are missing; the decision record of the "
            "batch has the source offsets to take them from."
        )
    return "the first call has not ended well, or is still under way."
