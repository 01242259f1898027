"""PySpark's worker daemon, with the modules of a write task imported before it forks: workers start
warm.

Spark starts it as ``python -m exactum.spark.startup.daemon pyspark.worker`` where the session has
``spark.python.daemon.module=exactum.spark.startup.daemon``, as ``local_session`` sets it. It saves
each new worker its imports, about 0.2 s of CPU. It only imports: librdkafka and Arrow's pools start
their threads when they are first used, which is after the fork, and the two threads that NumPy's
BLAS and jemalloc start on import are left to the fork handlers that both libraries register.

PySpark's workers run a full garbage collection after every task. What is imported here is frozen
before the fork, so that it is not walked each time: 20 ms of CPU less for every task.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util

WARM = (
    "pyspark.worker",
    "numpy",
    "pyarrow",
    "confluent_kafka",
    "exactum.spark.write.write_task",
    "exactum.kafka.writer",
)
"""What a task that writes to Kafka imports. No client is made here: its threads would not
survive a fork.
"""


def warm() -> None:
    """Import what is installed of ``WARM``; a worker that needs the rest says so itself."""
    for name in WARM:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    warm()
    manager()
