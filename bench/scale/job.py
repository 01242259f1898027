"""One life of a driver that runs a query for each point, one after another. A process of its own.

Usage: python -m bench.scale.job JSON, the fields of ``Job``. What was seen is in ``SEEN``.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import exactum
from bench.scale.point import RECORDS, Point
from exactum.events import EpochCompleted, Event

SMALL = "spark.exactum.coalesceSmallEpochs.enabled"
SEEN = "seen.json"
"""Below the job's folder."""
POINT_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Job:
    """``points``: the fields of each. Spark's event log and the checkpoints go below ``folder``."""

    master: str
    servers: str
    folder: str
    points: list[dict[str, Any]]
    settings: dict[str, Any] = field(default_factory=dict)


def main(job: Job) -> None:
    log = Path(job.folder, "log")
    log.mkdir()
    spark = exactum.local_session(
        "scale",
        master=job.master,
        **{
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": log.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.sql.streaming.numRecentProgressUpdates": 1_000,
            **job.settings,
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    seen = [
        run_point(spark, job, Point(**point), f"{job.folder}/checkpoint-{number}")
        for number, point in enumerate(job.points)
    ]
    spark.stop()
    # Not to the standard output: it is read only when this process has ended.
    Path(job.folder, SEEN).write_text(json.dumps(seen))
    print("{}")


def run_point(spark: SparkSession, job: Job, point: Point, checkpoint: str) -> dict[str, Any]:
    """Read all records of the point's topic into another one; stopped when nothing is left."""
    spark.conf.set(SMALL, str(not point.planned).lower())
    epochs: list[EpochCompleted] = []

    def note(event: Event) -> None:
        if isinstance(event, EpochCompleted):
            epochs.append(event)

    frame = exactum.read_kafka(
        spark,
        point.load.topic,
        bootstrap_servers=job.servers,
        start="earliest",
        maxOffsetsPerTrigger=RECORDS * point.partitions,
    )
    sink = exactum.KafkaSink(f"{point.load.topic}-out", bootstrap_servers=job.servers)
    writer = frame.selectExpr("value AS key", "value").writeStream
    query = exactum.exactly_once(sink, on_event=note).start(writer, checkpoint=checkpoint)
    deadline_s = time.monotonic() + POINT_TIMEOUT_S
    while sum(epoch.rows for epoch in epochs) < point.load.records:
        if query.awaitTermination(0.1):
            raise RuntimeError(f"{point}: the query ended: {query.exception()}")
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"{point}: not within {POINT_TIMEOUT_S} s: {len(epochs)} batches")
    time.sleep(0.5)  # Spark's report of the last one comes after it
    progress = {p["batchId"]: dict(p["durationMs"]) for p in query.recentProgress}
    query.stop()
    return {
        "query_id": str(query.id),
        "progress": progress,
        "epochs": [asdict(epoch) for epoch in epochs],
    }


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
