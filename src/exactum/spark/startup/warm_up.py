"""Does early what a query's start would wait for: the driver's imports, and the first Python
workers.

Both run in the background while there is something else to wait for (docs/speed.md): the
imports while the JVM starts; a tiny job, while the query is planned, that brings up the daemon and
its workers. Nothing depends on either.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import threading
from collections.abc import Iterator

from pyspark.sql import SparkSession

logger = logging.getLogger("exactum")

SETTING = "spark.exactum.warmWorkers"
"""Set to false, and no job is run that the user did not ask for."""
WORKERS_MAX = 4
ENDING_S = 10.0
"""How long a script that ends waits for them, where it ends sooner than they have started."""

DRIVER_MODULES = (
    "pyspark.testing.utils",
    "exactum.spark.source.read_kafka",
    "exactum.spark.delivery",
    "exactum.kafka.sink",
)
"""What a driver that reads and writes Kafka imports. The first one is PySpark's own need, at its
first call to the JVM (``NumpyScalarConverter``): it brings pandas, where that is installed.
"""


class TouchArrays:
    """What a warming task does: import what a write task imports, and return nothing."""

    def __call__(self, partition: int, arrays: Iterator[bytes]) -> Iterator[bytes]:
        from exactum.kafka import writer  # noqa: F401  (its import is the purpose)

        for _ in arrays:
            pass
        return iter(())


def import_modules() -> None:
    """Import in the background what the driver will need; returns at once."""
    threading.Thread(target=_import, name="exactum-imports", daemon=True).start()


def _import() -> None:
    for name in DRIVER_MODULES:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  (who needs it imports it again, and is told)
            logger.debug("%s could not be imported ahead of need: %s", name, error)


def start_workers(spark: SparkSession) -> None:
    """Start workers in the background; returns at once. Nothing depends on it."""
    thread = threading.Thread(
        target=touch_workers, args=(spark,), name="exactum-warm-up", daemon=True
    )
    thread.start()
    # Of workers that start while the script ends Spark prints traces, below what the script said.
    atexit.register(thread.join, ENDING_S)


def touch_workers(spark: SparkSession) -> None:
    """Run a job that starts the session's Python workers, or keeps them from ending. Never
    raises. It is a job of Spark's core: to plan one of SQL takes a cold JVM a second of CPU.
    """
    from exactum.spark.jvm.packed import PackedJob

    try:
        spark.sparkContext.setJobDescription("exactum starts Python workers")
        workers = min(WORKERS_MAX, spark.sparkContext.defaultParallelism)
        PackedJob(spark, TouchArrays()).run_side_by_side(workers)
    except Exception as error:  # noqa: BLE001  (the session may have been stopped; nothing depends on this job)
        logger.debug("Python workers could not be started ahead of need: %s", error)
