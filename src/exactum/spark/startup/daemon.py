"""PySpark's worker daemon, with the modules of a write task imported before it forks: workers start
warm.

Spark starts it as ``python -m exactum.spark.startup.daemon pyspark.worker`` where the session has
``spark.python.daemon.module=exactum.spark.startup.daemon``, as ``local_session`` sets it. It saves
each new worker its imports, about 0.2 s of CPU. It only imports: librdkafka and Arrow's pools start
their threads when they are first used, which is after the fork, and the two threads that NumPy's
BLAS and jemalloc start on import are left to the fork handlers that both libraries register.

PySpark's workers run a full garbage collection after every task. What is imported here is frozen
before the fork, so that it is not walked each time: 20 ms of CPU less for every task.

Spark puts zips with PySpark and Py4J first into the path of its workers. Python compiles anew what
it imports from a zip, half a second of CPU, and each worker reads the zips' lists of files sixteen
times over (``invalidate_caches``). Where the same PySpark is installed, this daemon imports that.

Spark closes the socket of a worker that was idle for a minute. From 4.1 on the worker then prints a
traceback, ``BrokenPipeError``, since it cannot say goodbye: a query that waits for records looked
broken. Here such a worker ends without a word.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import re
import socket
import sys
from collections.abc import Callable

from exactum.packages import pyspark_version

WARM = (
    "pyspark.worker",
    "numpy",
    "pyarrow",
    "confluent_kafka",
    "exactum.spark.write.packed_records",
    "exactum.spark.write.write_task",
    "exactum.kafka.writer",
)
"""What a task that writes to Kafka imports. No client is made here: its threads would not
survive a fork.
"""
ZIPS = re.compile(r"pyspark\.zip|py4j-.+-src\.zip|spark-core_.+\.jar")
"""What PythonUtils.scala puts first into the path; no jar has Python modules in it."""


def leave_zips() -> None:
    """Take Spark's zips out of the path, where the very PySpark in them is installed as well.
    To be called before PySpark is imported.
    """
    found, path = pyspark_version(), list(sys.path)
    zips = [entry for entry in path if ZIPS.fullmatch(os.path.basename(entry))]
    sys.path[:] = [entry for entry in path if entry not in zips]
    try:
        same = pyspark_version() == found and importlib.util.find_spec("py4j") is not None
    except ModuleNotFoundError:
        same = False
    if not same:
        sys.path[:] = path
        return
    for entry in zips:
        sys.path_importer_cache.pop(entry, None)  # else its list of files is read all the same


def draw_anew() -> None:
    """NumPy before 2 loads its random numbers with itself, and all workers would draw the same."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


def warm() -> None:
    """Import what is installed of ``WARM``; a worker that needs the rest says so itself."""
    for name in WARM:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    os.register_at_fork(after_in_child=draw_anew)
    gc.collect()
    gc.freeze()


def unheard(worker: Callable[..., int]) -> Callable[..., int]:
    """The worker, which ends as after a failure where nobody reads any more what it has to say."""

    def run(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except BrokenPipeError:
            return 1

    return run


if __name__ == "__main__":
    leave_zips()
    from pyspark import daemon

    daemon.worker = unheard(daemon.worker)
    warm()
    daemon.manager()
