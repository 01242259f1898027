"""Tells the supervisor which batch a run is at, and has the script's queries stopped together."""

from __future__ import annotations

from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.run_context import RunContext
from exactum.spark.supervised.process import SupervisedProcess
from exactum.spark.supervised.stopping import Stoppable, stoppable_runs


class SupervisedQuery(EpochListener):
    """One run of a query in a supervised script; ``gate`` is before its epochs."""

    def __init__(self, supervised: SupervisedProcess, context: RunContext, gate: Stoppable) -> None:
        self._supervised = supervised
        self._query_id = context.query.query_id
        self._gate = gate
        stoppable_runs.enter(gate)

    def begin(self, batch: Batch) -> None:
        """See the base class."""
        self._supervised.report("batch", query_id=self._query_id, batch_id=batch.batch_id)

    def close(self) -> None:
        """See the base class."""
        stoppable_runs.leave(self._gate)
