"""The job under test, run as a process of its own: Kafka in, a transformation, Kafka out, exactly
once.

Its one argument is a JSON object: ``session`` (master, conf) and ``specs``, queries that run one
after another in that session. The keys of a spec are the fields of ``QuerySpec``.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import exactum
from exactum.checkpoint.layout import DECISIONS
from exactum.errors import ExactumError
from exactum.events import EpochCompleted, Event
from exactum.files.slot_log import SlotLog
from exactum.storage.folder import Folder
from tests.kit.crash.deaths import Fault, Faults, FaultyLog, FaultySink
from tests.kit.source.in_columns import in_columns
from tests.kit.spark.each_batch import around_each_batch

POLL_S = 0.05


@dataclasses.dataclass(frozen=True)
class QuerySpec:
    """One query. ``folder`` takes its event log and its result; a file ``stop`` in it stops the
    query.
    """

    folder: str
    bootstrap_servers: str
    source: str
    outputs: Sequence[str]
    checkpoint: str
    mode: str = "upper"
    max_offsets: int = 60
    drain: bool = True
    stop_after: int = 0
    sink: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    faults: Sequence[Mapping[str, Any]] = ()
    postgres: str = ""
    """Where the table ``copy`` takes the same rows, in the same epochs; empty: nowhere."""


def transformed(spark: SparkSession, spec: QuerySpec) -> DataFrame:
    records = exactum.read_kafka(
        spark,
        spec.source,
        bootstrap_servers=spec.bootstrap_servers,
        maxOffsetsPerTrigger=spec.max_offsets,
    )
    frame = in_columns(records).selectExpr(
        "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value"
    )
    if spec.mode == "upper":
        # Not upper(): its first use in a JVM builds tables for all of Unicode, a second of CPU for
        # each life.
        return frame.selectExpr("key", "concat('N', substring(value, 2)) AS value")
    numbers = frame.selectExpr("key", "CAST(substr(value, 2) AS LONG) AS number")
    totals = numbers.groupBy("key").agg({"*": "count", "number": "sum"})
    return totals.selectExpr("key", "concat(`count(1)`, ':', `sum(number)`) AS value")


def start(spark: SparkSession, spec: QuerySpec) -> tuple[StreamingQuery, Any, threading.Event]:
    folder = Path(spec.folder)
    faults = Faults([Fault(**{"folder": spec.folder, **f}) for f in spec.faults])
    enough = threading.Event()
    completed = 0

    def on_event(event: Event) -> None:
        nonlocal completed
        with (folder / "events").open("a") as file:
            file.write(
                json.dumps({"event": type(event).__name__, **dataclasses.asdict(event)}) + "\n"
            )
        completed += isinstance(event, EpochCompleted)
        if spec.stop_after and completed >= spec.stop_after:
            enough.set()

    def log() -> SlotLog:
        query_id = json.loads(Path(spec.checkpoint, "metadata").read_text())["id"]
        return SlotLog(Folder(Path(spec.checkpoint, DECISIONS)), query_id)

    sinks: list[Any] = [
        exactum.KafkaSink(topic, bootstrap_servers=spec.bootstrap_servers, **spec.sink)
        for topic in spec.outputs
    ]
    if spec.postgres:
        sinks.append(exactum.PostgresSink(spec.postgres, table="copy", create_table=True))
    exact = exactum.exactly_once(
        *(FaultySink(sink, faults) for sink in sinks),
        decision_log=FaultyLog(log, faults),
        on_event=on_event,
    )

    around_each_batch(lambda write, frame, batch_id: faults.around("batch", write))
    writer = transformed(spark, spec).writeStream.outputMode(
        "append" if spec.mode in ("upper", "arrow") else "update"
    )
    writer = (
        writer.trigger(availableNow=True)
        if spec.drain
        else writer.trigger(processingTime="0 seconds")
    )
    return exact.start(writer, checkpoint=spec.checkpoint), enough


def run(spark: SparkSession, spec: QuerySpec) -> None:
    folder = Path(spec.folder)
    result: dict[str, Any] = {"outcome": "finished"}
    try:
        query, enough = start(spark, spec)
        while not query.awaitTermination(POLL_S):
            if enough.is_set() or (folder / "stop").exists():
                query.stop()
                result["outcome"] = "stopped"
    except Exception as error:
        own = type(error).__name__ if isinstance(error, ExactumError) else "NoneType"
        result = {"outcome": "failed", "error": own, "message": str(error)}
    (folder / "result.tmp").write_text(json.dumps(result))
    (folder / "result.tmp").rename(folder / "result")


def main(argument: str) -> None:
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("exactum").setLevel(logging.DEBUG)
    play = json.loads(argument)
    spark = exactum.local_session("crash", **play["session"])
    for spec in play["specs"]:
        run(spark, QuerySpec(**spec))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
