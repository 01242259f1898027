"""Where the time of a small micro-batch goes: the steps that Spark's progress tells, and exactum's
phases within them, beside Spark's own sink in one warm session, in turn.

python -m bench --only micro-batch [--picture docs/pictures/micro-batch-time.svg]
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer as Client

import exactum
from bench import epochs, micro_batch_picture, report
from exactum.local import LocalKafka

PARTITIONS = 4
RECORDS_PER_S = 1_000
TICK_S = 0.01
VALUE = b"x" * 100
INTERVAL_MS = 100
WARM_S, MEASURED_S = 15.0, 30.0
STEPS: Mapping[str, str] = {
    "latestOffset": "asks Kafka for the newest offsets",
    "walCommit": "writes the offset log",
    "getBatch": "hands out the batch",
    "queryPlanning": "plans",
    "addBatch": "runs the batch",
    "commitOffsets": "writes the commit log",
}
"""Of ``durationMs``, in the order in which Spark takes them; they follow each other."""
PHASES = ("write", *epochs.PHASES)
"""exactum's, within addBatch."""
OURS, SPARKS = "exactum, exactly once", "Spark's own sink, at least once"


def bench(kafka: LocalKafka, rounds: int, picture: Path | None) -> None:
    """Print a table of the steps' times, and draw it where ``picture`` says."""
    for topic in ("micro-batch", "micro-batch-out"):
        kafka.create_topic(topic, partitions=PARTITIONS)
    spark = exactum.local_session(
        "micro-batch", master="local[2]", **{"spark.sql.streaming.numRecentProgressUpdates": 2_000}
    )
    spark.sparkContext.setLogLevel("ERROR")
    starts = {OURS: _ours, SPARKS: _sparks}
    found: dict[str, list[Mapping[str, float]]] = {name: [] for name in starts}
    with _records(kafka, "micro-batch"), tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for name, start in starts.items():
                report.console.print(f"round {number + 1} of {rounds}: {name} ...")
                checkpoint = Path(folder, f"{number}-{start.__name__}")
                found[name] += _lived(start, spark, kafka, checkpoint)
        spark.stop()
    names = [*STEPS, *(f"exactum.{phase}" for phase in PHASES), "triggerExecution"]
    report.table(
        f"a micro-batch each {INTERVAL_MS} ms, {RECORDS_PER_S:,} records a second, ms",
        ["step", *found],
        [
            [
                name,
                *(_cell([each[name] for each in all_ if name in each]) for all_ in found.values()),
            ]
            for name in names
        ],
    )
    if picture is not None:
        medians = {name: _medians(all_) for name, all_ in found.items()}
        picture.write_text(micro_batch_picture.drawn(medians, STEPS, PHASES))
        report.console.print(f"{picture}: drawn")


def _cell(values: Sequence[float]) -> str:
    return report.spread(values, 1) if values else "-"


def _medians(batches: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = {name for batch in batches for name in batch}
    return {
        name: statistics.median(batch[name] for batch in batches if name in batch) for name in names
    }


def _ours(spark: Any, kafka: LocalKafka, checkpoint: str) -> Any:
    frame = exactum.read_kafka(spark, "micro-batch", bootstrap_servers=kafka.bootstrap_servers)
    sink = exactum.KafkaSink("micro-batch-out", bootstrap_servers=kafka.bootstrap_servers)
    return (
        frame.selectExpr("key", "value")
        .writeStream.foreachBatch(exactum.exactly_once(sink))
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{INTERVAL_MS} milliseconds")
        .start()
    )


def _sparks(spark: Any, kafka: LocalKafka, checkpoint: str) -> Any:
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", "micro-batch")
        .load()
    )
    return (
        frame.selectExpr("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("topic", "micro-batch-out")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{INTERVAL_MS} milliseconds")
        .start()
    )


def _lived(
    start: Callable[[Any, LocalKafka, str], Any], spark: Any, kafka: LocalKafka, checkpoint: Path
) -> list[Mapping[str, float]]:
    """The durations of the micro-batches of one life with records, after it is warm; of exactum's
    those that say their phases.
    """
    query = start(spark, kafka, str(checkpoint))
    while query.lastProgress is None:
        query.awaitTermination(1)  # which raises the error of a query that fails
    query.awaitTermination(WARM_S)
    warm = query.lastProgress["batchId"]
    query.awaitTermination(MEASURED_S)
    told = [json.loads(each.json) for each in query.recentProgress]
    query.stop()
    full = [each for each in told if each["batchId"] > warm and each["numInputRows"]]
    durations = [each["durationMs"] for each in full]
    if start is _ours:
        durations = [each for each in durations if "exactum.write" in each]
    if not durations:
        raise RuntimeError(f"no micro-batch with records within {WARM_S + MEASURED_S:.0f} s")
    return durations


@contextmanager
def _records(kafka: LocalKafka, topic: str) -> Iterator[None]:
    """``RECORDS_PER_S`` all the while."""
    stop = threading.Event()
    client = Client({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5})

    def send() -> None:
        began_s, sent = time.monotonic(), 0
        while not stop.wait(TICK_S):
            due = int((time.monotonic() - began_s) * RECORDS_PER_S)
            for number in range(sent, due):
                client.produce(topic, VALUE, partition=number % PARTITIONS)
            sent = due
            client.poll(0)

    sender = threading.Thread(target=send, name="micro-batch-records")
    sender.start()
    try:
        yield
    finally:
        stop.set()
        sender.join()
        client.flush(30)
