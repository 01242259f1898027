"""Stops the queries of this process, each between two epochs: Spark's commit log has the last one,
and none is begun.

A query that waits is stopped where it waits. A busy one is stopped when Spark asks for its next
batch: everything before it is done by then, and nothing of it is written; the next start begins
with it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NoReturn, Protocol

from exactum.errors import EpochAborted
from exactum.spark.write.write_job import CANCELLED

logger = logging.getLogger("exactum")

POLL_S = 0.02
EPOCH_TIMEOUT_S = 600.0
"""How long the epoch at hand may take, and a held batch waits; ``exactum run`` kills long
before.
"""


class Stoppable(Protocol):
    """A run of a query, as seen from here."""

    @property
    def run_id(self) -> str: ...

    def between_epochs(self) -> bool: ...


_runs: dict[str, Stoppable] = {}
_runs_lock = threading.Lock()


def enter(run: Stoppable) -> None:
    with _runs_lock:
        _runs[run.run_id] = run


def leave(run: Stoppable) -> None:
    """Idempotent."""
    with _runs_lock:
        _runs.pop(run.run_id, None)


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
        with _runs_lock:
            run = _runs.get(str(query.runId))
        deadline_s = time.monotonic() + EPOCH_TIMEOUT_S
        while (
            run is not None
            and query.isActive
            and not run.between_epochs()
            and time.monotonic() < deadline_s
        ):
            time.sleep(POLL_S)
        logger.info("query %s (%s): stopped after its epoch", query.name or query.id, query.runId)
        query.stop()
    return len(queries)


def hold(still_runs: Callable[[], bool]) -> NoReturn:
    """Wait until the query of the calling batch is being stopped, and leave the batch as Spark
    expects of one.
    """
    deadline_s = time.monotonic() + EPOCH_TIMEOUT_S
    while still_runs() and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
    raise EpochAborted(CANCELLED)
