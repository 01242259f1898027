"""Stops the queries of this process, each between two epochs: Spark's commit log has the last one,
and none is begun.

A query that waits is stopped where it waits, a busy one after its epoch: its gate lets no other one
begin (``spark.run.epoch_gate``).
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from exactum.spark.jvm.execution import Execution

logger = logging.getLogger("exactum")

POLL_S = 0.02
EPOCH_TIMEOUT_S = 600.0
"""How long the epochs at hand may take; ``exactum run`` kills long before."""
COMMIT_LOG_TIMEOUT_S = 10.0
"""How long Spark may take to log an epoch that is done, before the query is stopped all the
same.
"""


class Stoppable(Protocol):
    """A run of a query, as seen from here."""

    @property
    def run_id(self) -> str: ...

    def between_epochs(self, log_timeout_s: float) -> bool: ...


class StoppableRuns:
    """The runs of exactum that are under way, by Spark's run id. Safe to use from threads."""

    def __init__(self) -> None:
        self._runs: dict[str, Stoppable] = {}
        self._lock = threading.Lock()

    def enter(self, run: Stoppable) -> None:
        with self._lock:
            self._runs[run.run_id] = run

    def leave(self, run: Stoppable) -> None:
        """Idempotent."""
        with self._lock:
            self._runs.pop(run.run_id, None)

    def run(self, run_id: str) -> Stoppable | None:
        with self._lock:
            return self._runs.get(run_id)


stoppable_runs = StoppableRuns()
"""Of this process: the supervisor asks the whole script to stop, with every query in it."""


def stop_queries() -> int:
    """Stop every streaming query of this Spark application, of whichever session; returns how many
    there were.

    Those of exactum are stopped between two epochs, however long the ones at hand take, and others
    by Spark's own ``stop``. None is stopped before all of exactum's are there: a script may end
    with the first of its queries that does. Whoever calls has seen to it that no run begins another
    epoch.

    Raises:
        JvmError: Spark does not answer.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.active()
    except PySparkException:  # there is no session
        return 0
    executions = Execution.active(session)
    deadline_s = time.monotonic() + EPOCH_TIMEOUT_S
    for execution in executions:
        run = stoppable_runs.run(execution.run_id())
        while (
            run is not None
            and execution.is_active()
            and not run.between_epochs(COMMIT_LOG_TIMEOUT_S)
            and time.monotonic() < deadline_s
        ):
            time.sleep(POLL_S)
    for execution in executions:
        what = execution.name() or execution.query_id()
        logger.info("query %s (%s): stopped after its epoch", what, execution.run_id())
        execution.stop()
    return len(executions)
