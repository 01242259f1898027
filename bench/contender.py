"""One run of one contender: a fresh driver that drains a topic into another one and ends. A process
of its own.

Usage: python -m bench.contender NAME BOOTSTRAP_SERVERS SOURCE TARGET CHECKPOINT
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import Any

import exactum
from exactum.events import EpochCompleted

CONTENDERS = ("exactum exactly once", "exactum at least once", "Spark's own sink")


def main(
    name: str,
    servers: str,
    source: str,
    target: str,
    checkpoint: str,
    offsets_per_trigger: str = "",
) -> None:
    began_s = time.perf_counter()
    # Spark's own sink runs no Python, and reads from Spark's own source: it is measured without the
    # workers that exactum starts ahead of need, and without the columns that exactum reads.
    ours = name != CONTENDERS[2]
    switches = {"spark.exactum.warmWorkers": ours, "spark.exactum.columnarKafka.enabled": ours}
    spark = exactum.local_session("bench", master="local[2]", **switches)
    spark.sparkContext.setLogLevel("ERROR")
    session_s = time.perf_counter() - began_s
    options: dict[str, Any] = {}
    if offsets_per_trigger:
        options["maxOffsetsPerTrigger"] = offsets_per_trigger
    frame = exactum.read_kafka(
        spark, source, bootstrap_servers=servers, start="earliest", **options
    )
    writer = frame.selectExpr("key", "value").writeStream.trigger(availableNow=True)
    events: list[EpochCompleted] = []
    if name == CONTENDERS[2]:
        writer = writer.format("kafka").option("kafka.bootstrap.servers", servers)
        query: Any = writer.option("topic", target).option("checkpointLocation", checkpoint).start()
    else:
        sink = exactum.KafkaSink(target, bootstrap_servers=servers)
        function: Any = (
            exactum.exactly_once(
                sink, on_event=lambda e: events.append(e) if isinstance(e, EpochCompleted) else None
            )
            if name == CONTENDERS[0]
            else exactum.at_least_once(sink)
        )
        if hasattr(function, "start"):
            query = function.start(writer, checkpoint=checkpoint)
        else:  # the exactum of an older checkout
            query = writer.option("checkpointLocation", checkpoint).foreachBatch(function).start()
    query.awaitTermination()
    query_s = time.perf_counter() - began_s - session_s
    durations = [dict(p["durationMs"]) for p in query.recentProgress]
    print(
        json.dumps(
            {
                "session_s": session_s,
                "query_s": query_s,
                "epochs": [asdict(e) for e in events],
                "durations_ms": durations,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
