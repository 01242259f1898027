"""exactum's worker daemon with some tunings of tasks taken out: those that ``EXACTUM_BENCH_OFF``
names.

Spark starts it as ``python -m bench.tuned_daemon pyspark.worker``.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

OFF = "EXACTUM_BENCH_OFF"


@contextmanager
def lockstep(batches: Iterator[Any]) -> Iterator[Iterator[Any]]:
    """What ``Prefetch`` is without its thread."""
    yield batches


def take_out(off: set[str]) -> None:
    from exactum.kafka.producer.producer_pool import ProducerPool
    from exactum.spark.startup import daemon
    from exactum.spark.write import write_task

    if "prefetch" in off:
        write_task.Prefetch = lockstep  # type: ignore[assignment,misc]
    if "ready producers" in off:
        ProducerPool.initialise_ahead = lambda self: None  # type: ignore[method-assign]
    if "imports of the daemon" not in off:
        daemon.warm()
    if "frozen modules" in off:
        gc.unfreeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    take_out(set(filter(None, os.environ.get(OFF, "").split(","))))
    manager()
