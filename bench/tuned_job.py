"""One life of a driver, with or without a tuning. A process of its own.

Usage: python -m bench.tuned_job JSON, the fields of ``Job``. Prints the times as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import exactum
from bench.tuned_daemon import OFF
from bench.tuning import DAEMON, OURS, TUNINGS
from exactum.events import EpochCompleted, Event

BLOCK = 10
"""Epochs with the tuning, then as many without; of each block the first one is left out."""


@dataclass(frozen=True)
class Job:
    """``tuning``: which one is taken out, of every other block if ``switched``, else for good
    unless ``there``. ``offsets_per_trigger``: 0 for all at once.
    """

    servers: str
    source: str
    target: str
    checkpoint: str
    tuning: str
    switched: bool
    there: bool
    offsets_per_trigger: int


def main(job: Job) -> None:
    began_s = time.perf_counter()
    tuning = next(each for each in TUNINGS if each.name == job.tuning)
    out = not job.switched and not job.there
    os.environ[OFF] = tuning.name if out and tuning.in_daemon else ""
    settings: dict[str, Any] = {DAEMON: OURS, **(tuning.settings if out else {})}
    spark = exactum.local_session("tuned", master="local[2]", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    tuning.begun()
    completed_s: list[float] = []
    taken_out = ExitStack()

    def note(event: Event) -> None:
        if not isinstance(event, EpochCompleted):
            return
        completed_s.append(time.perf_counter() - began_s)
        if job.switched and len(completed_s) % BLOCK == 0:
            taken_out.close()
            if len(completed_s) // BLOCK % 2 and tuning.out is not None:
                taken_out.enter_context(tuning.out())

    limit = {"maxOffsetsPerTrigger": job.offsets_per_trigger} if job.offsets_per_trigger else {}
    if out and tuning.out is not None:
        taken_out.enter_context(tuning.out())
    frame = exactum.read_kafka(
        spark, job.source, bootstrap_servers=job.servers, start="earliest", **limit
    )
    views: dict[str, Any] = {"rows": lambda batch: batch.selectExpr("value")}
    targets = [f"{job.target}-2", job.target] if tuning.views else [job.target]
    sinks = [
        exactum.KafkaSink(name, bootstrap_servers=job.servers, **(views if tuning.views else {}))
        for name in targets
    ]
    query = (
        frame.selectExpr("key", "value")
        .writeStream.option("checkpointLocation", job.checkpoint)
        .foreachBatch(exactum.exactly_once(*sinks, on_event=note))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    taken_out.close()
    print(json.dumps({"completed_s": completed_s, "query_s": time.perf_counter() - began_s}))
    spark.stop()


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
