"""The job under test: transfers in from Kafka; two postings for each into Kafka, PostgreSQL,
MariaDB, files and an HTTP server without transactions.

Run as a process of its own by ``jobs.Job``: the keys of a spec are the fields of ``BankSpec``.
"""

from __future__ import annotations

import json
import logging
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import exactum
from exactum.checkpoint.layout import DECISIONS
from exactum.errors import ExactumError
from exactum.files.slot_log import SlotLog
from exactum.storage.folder import Folder
from tests.kit.crash.deaths import Fault, Faults, FaultyLog, FaultySink
from tests.kit.spark.each_batch import around_each_batch
from tests.kit.waiting import WAIT_MAX_S

POSTINGS = (
    "transform(array(1, -1), s -> named_struct('account', if(s > 0, t.target, t.source), "
    "'amount', s * t.amount))"
)


@dataclass(frozen=True)
class BankSpec:
    """One query; ``folder`` takes its result, ``api`` is a URL."""

    folder: str
    bootstrap_servers: str
    source: str
    topic: str
    postgres: str
    mysql: str
    files: str
    checkpoint: str
    api: str
    max_offsets: int = 60
    faults: Sequence[Mapping[str, Any]] = field(default_factory=list)


class ApiSink(exactum.WriteAheadSink):
    """One POST for each chunk."""

    def __init__(self, url: str) -> None:
        super().__init__(name="api", rows_per_send_max=20, tries_max=3, backoff_ms=50)
        self.url = url

    def send(self, batch: Any, key: str) -> None:
        request = urllib.request.Request(
            self.url, json.dumps(batch.to_pylist()).encode(), {"Idempotency-Key": key}
        )
        with urllib.request.urlopen(request, timeout=WAIT_MAX_S) as reply:
            reply.read()


def postings(spark: SparkSession, spec: BankSpec) -> DataFrame:
    """(id, account, amount): each transfer takes from one account and gives to the other."""
    frame = exactum.read_kafka(
        spark,
        spec.source,
        bootstrap_servers=spec.bootstrap_servers,
        maxOffsetsPerTrigger=spec.max_offsets,
    )
    transfers = frame.selectExpr(
        "from_json(CAST(value AS STRING), 'id long, source string, target string, amount long') "
        "AS t"
    )
    exploded = transfers.selectExpr("t.id AS id", f"explode({POSTINGS}) AS posting")
    return exploded.selectExpr("id", "posting.account AS account", "posting.amount AS amount")


def records(batch: DataFrame) -> DataFrame:
    return batch.selectExpr("account AS key", "to_json(struct(id, account, amount)) AS value")


def main(argument: str) -> None:
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    play = json.loads(argument)
    spark = exactum.local_session("bank", **play["session"])
    for one in play["specs"]:
        run(spark, BankSpec(**one))
    spark.stop()


def run(spark: SparkSession, spec: BankSpec) -> None:
    faults = Faults([Fault(**{"folder": spec.folder, **f}) for f in spec.faults])
    sinks = (
        exactum.KafkaSink(spec.topic, bootstrap_servers=spec.bootstrap_servers, rows=records),
        exactum.PostgresSink(spec.postgres, table="postings"),
        exactum.MySQLSink(spec.mysql, table="postings"),
        exactum.FileSink(spec.files, partition_by=["account"]),
        ApiSink(spec.api),
    )

    def log() -> SlotLog:
        query_id = json.loads(Path(spec.checkpoint, "metadata").read_text())["id"]
        return SlotLog(Folder(Path(spec.checkpoint, DECISIONS)), query_id)

    exact = exactum.exactly_once(
        *(FaultySink(sink, faults) for sink in sinks), decision_log=FaultyLog(log, faults)
    )
    around_each_batch(lambda write, frame, batch_id: faults.around("batch", write))
    writer = postings(spark, spec).writeStream.trigger(availableNow=True)
    result: dict[str, Any] = {"outcome": "finished"}
    try:
        exact.start(writer, checkpoint=spec.checkpoint).awaitTermination()
    except Exception as error:
        own = type(error).__name__ if isinstance(error, ExactumError) else "NoneType"
        result = {"outcome": "failed", "error": own, "message": str(error)}
    (Path(spec.folder) / "result.tmp").write_text(json.dumps(result))
    (Path(spec.folder) / "result.tmp").rename(Path(spec.folder) / "result")


if __name__ == "__main__":
    main(sys.argv[1])
