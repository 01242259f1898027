"""A driver that copies a topic, epoch by epoch, in one way after the other. A process of its own.

Usage: python -m bench.live.job JSON, the fields of ``Job``. Prints a line of JSON for each life of
a query.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import exactum
from bench.process import CLOCK_TICKS_PER_S, stat, tree
from exactum.events import EpochCompleted, Event

READ, ARROW = "read_kafka", "arrow_kafka"
WAYS = (READ, ARROW)


@dataclass(frozen=True)
class Job:
    """``per_epoch``: records of all partitions."""

    servers: str
    source: str
    targets: list[str]
    ways: list[str]
    broker: int
    folder: str
    per_epoch: int


def spent_s(pid: int, *, whole: bool) -> float:
    """User and system time of a process, or of its tree with those of it that have ended."""
    total = 0
    for one in [each for each, _ in tree(pid)] if whole else [pid]:
        fields = stat(one)
        if fields is not None:
            total += sum(map(int, fields[11:15] if whole else fields[11:13]))
    return total / CLOCK_TICKS_PER_S


def copied(spark: SparkSession, job: Job, way: str, target: str) -> dict[str, Any]:
    """One life of a query: when each epoch stood, and what had been spent by then."""
    told: list[tuple[float, float, float]] = []

    def note(event: Event) -> None:
        if isinstance(event, EpochCompleted):
            told.append(
                (
                    time.perf_counter(),
                    spent_s(os.getpid(), whole=True),
                    spent_s(job.broker, whole=False),
                )
            )

    frame = getattr(exactum, way)(
        spark, job.source, bootstrap_servers=job.servers, maxOffsetsPerTrigger=job.per_epoch
    )
    sink = exactum.KafkaSink(target, bootstrap_servers=job.servers)
    began_s = time.perf_counter()
    query = (
        frame.selectExpr("key", "value")
        .writeStream.option("checkpointLocation", str(Path(job.folder, target)))
        .foreachBatch(exactum.exactly_once(sink, on_event=note))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    whole_s = time.perf_counter() - began_s
    return {"way": way, "target": target, "told": told, "query_s": whole_s}


class NoWayBack(logging.Handler):
    """Ends the process where the workers do not read by themselves: nothing would be compared."""

    def emit(self, record: logging.LogRecord) -> None:
        if f"{ARROW}: Spark reads" in record.getMessage():
            sys.stderr.write(f"{record.getMessage()}\n")
            os._exit(1)


def main(job: Job) -> None:
    logging.getLogger("exactum").addHandler(NoWayBack(logging.WARNING))
    spark = exactum.local_session("live", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    for way, target in zip(job.ways, job.targets, strict=True):
        print(json.dumps(copied(spark, job, way, target)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
