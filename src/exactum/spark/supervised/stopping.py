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

logger = logging.getLogger("exactum")

POLL_S = 0.02
EPOCH_TIMEOUT_S = 600.0
"""How long the epoch at hand may take; ``exactum run`` kills long before."""
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
    """Stop every streaming query of the active session; returns how many there were.

    Those of exactum are stopped between two epochs, however long the one at hand takes; others by
    Spark's own ``stop``. Whoever calls has seen to it that no run begins another epoch.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        queries = SparkSession.active().streams.active
    except PySparkException:  # there is no session
        return 0
    for query in queries:
        run = stoppable_runs.run(str(query.runId))
        deadline_s = time.monotonic() + EPOCH_TIMEOUT_S
        while (
            run is not None
            and query.isActive
            and not run.between_epochs(COMMIT_LOG_TIMEOUT_S)
            and time.monotonic() < deadline_s
        ):
            time.sleep(POLL_S)
        logger.info("query %s (%s): stopped after its epoch", query.name or query.id, query.runId)
        query.stop()
    return len(queries)
