"""Starts Python workers while the user's query is still being planned.

The first Python task of a session waits for the daemon, its imports, the workers and the JVM's Arrow classes: about a
second of a query's start (docs/performance.md). A tiny job that runs meanwhile takes it off the critical path.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

logger = logging.getLogger("exactum")

SETTING = "spark.exactum.warmWorkers"
"""Set to false, and no job is run that the user did not ask for."""
WORKERS_MAX = 4


class Touch:
    """What a warming task does: import what a write task imports, and return nothing."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from exactum.kafka import writer  # noqa: F401  (its import is the purpose)
        from exactum.spark.write_task import record_batch

        for _ in batches:
            pass
        yield record_batch([])


def start_workers(spark: SparkSession) -> None:
    """Start workers in the background; returns at once. Nothing depends on it."""
    threading.Thread(target=_run, args=(spark,), name="exactum-warmth", daemon=True).start()


def _run(spark: SparkSession) -> None:
    from exactum.spark import write_job

    try:
        workers = min(WORKERS_MAX, spark.sparkContext.defaultParallelism)
        spark.sparkContext.setJobDescription("exactum starts Python workers")
        write_job.map_in_arrow(spark.range(0, workers, 1, workers), Touch()).collect()
    except Exception as error:  # noqa: BLE001  (the session may have been stopped; nothing depends on this job)
        logger.debug("Python workers could not be started ahead of need: %s", error)
