"""The job of ``test_two_topics``: one driver with two queries over the same two topics, a union and
a join.

Its one argument is a JSON object: ``session`` (master, conf) and ``specs``, of which there is one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import exactum
from exactum.events import EpochCompleted, Event
from tests.kit.source.in_columns import in_columns


def read(spark: SparkSession, spec: dict[str, Any], name: str) -> DataFrame:
    return in_columns(
        exactum.read_kafka(
            spark,
            spec[name]["topic"],
            bootstrap_servers=spec["bootstrap_servers"],
            maxOffsetsPerTrigger=spec[name]["max_offsets"],
        )
    )


def union(spark: SparkSession, spec: dict[str, Any]) -> DataFrame:
    """Every record with where it comes from, and the time of the epoch that read it."""
    both = read(spark, spec, "fast").unionByName(read(spark, spec, "slow"))
    place = (
        "concat_ws('/', topic, partition, offset, CAST(value AS STRING), "
        "unix_millis(current_timestamp()))"
    )
    return both.selectExpr("CAST(key AS STRING) AS key", f"{place} AS value")


def join(spark: SparkSession, spec: dict[str, Any]) -> DataFrame:
    """Every pair of a fast and a slow record with the same key."""
    fast, slow = (
        read(spark, spec, name).selectExpr(
            "CAST(key AS STRING) AS key", f"CAST(value AS STRING) AS {name}"
        )
        for name in ("fast", "slow")
    )
    return fast.join(slow, "key").selectExpr("key", "concat(fast, ':', slow) AS value")


def start(frame: DataFrame, spec: dict[str, Any], name: str) -> StreamingQuery:
    def on_event(event: Event) -> None:
        if isinstance(event, EpochCompleted):
            with Path(spec["folder"], f"{name}-epochs").open("a") as file:
                file.write(f"{event.batch_id}\n")

    sink = exactum.KafkaSink(spec[name]["topic"], bootstrap_servers=spec["bootstrap_servers"])
    once = exactum.exactly_once(sink, on_event=on_event)
    writer = frame.writeStream.trigger(availableNow=True)
    return once.start(writer, checkpoint=spec[name]["checkpoint"], name=name)


def main(argument: str) -> None:
    play = json.loads(argument)
    spec = play["specs"][0]
    spark = exactum.local_session("two topics", **play["session"])
    queries = [start(union(spark, spec), spec, "union"), start(join(spark, spec), spec, "join")]
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
