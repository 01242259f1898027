"""A process that runs queries one after another as it is asked to, until it is killed or nobody is
left to ask.

Its one argument is the folder in which specs appear: ``0.json``, ``1.json`` ...
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import exactum
from chaos.job_spec import JobSpec, Result
from exactum import Query
from exactum.checkpoint.layout import DECISIONS
from exactum.files.slot_log import SlotLog
from exactum.storage.folder import Folder
from tests.kit.crash.deaths import Fault, Faults, FaultyLog, FaultySink
from tests.kit.source.in_columns import in_columns
from tests.kit.spark.each_batch import around_each_batch
from tests.kit.targets.bank import POSTINGS, records

POLL_S = 0.02
OWNER = os.getppid()
"""Nobody is left who would end this process when this one has."""
MASTER = "local[2,3]"
"""Two tasks at a time; one whose worker is killed is tried again."""
TRANSFER = "id long, source string, target string, amount long"
POSTING = "id long, account string, amount long"


def main(inbox: Path) -> None:
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("exactum").setLevel(logging.INFO)
    # The few records of a cell stand for many: several tasks, each with a transaction of its own.
    settings = {
        "spark.sql.adaptive.enabled": False,
        "spark.exactum.coalesceSmallEpochs.enabled": False,
    }
    spark = exactum.local_session(
        "chaos", master=MASTER, spark_sql_shuffle_partitions=2, **settings
    )
    (inbox / "ready").touch()
    number = 0
    while os.getppid() == OWNER:
        if (inbox / f"{number}.json").exists():
            spec = JobSpec(**json.loads((inbox / f"{number}.json").read_text()))
            print(f"---- spec {number}: {spec.folder}", flush=True)
            run(spark, spec).leave(spec)
            number += 1
        time.sleep(POLL_S)


def run(spark: SparkSession, spec: JobSpec) -> Result:
    """One spec, to its end."""
    try:
        query = start(spark, spec)
        stopped = False
        while not query.awaitTermination(POLL_S):
            if os.getppid() != OWNER:
                os._exit(1)
            if not stopped and (spec.path / "stop").exists():
                query.stop()
                stopped = True
        return Result("stopped" if stopped else "finished")
    except Exception as error:  # noqa: BLE001  (it is the result)
        ours = isinstance(error, exactum.errors.ExactumError)
        return Result("failed", type(error).__name__ if ours else "", str(error))


def start(spark: SparkSession, spec: JobSpec) -> Query:
    faults = Faults([Fault(**{"folder": spec.folder, **f}) for f in spec.faults])
    exact = exactum.exactly_once(
        *(FaultySink(sink_of(kind, settings), faults) for kind, settings in spec.sinks.items()),
        decision_log=FaultyLog(lambda: log_of(spec), faults),
    )
    around_each_batch(lambda write, frame, batch_id: faults.around("batch", write))
    trigger: dict[str, Any] = (
        {"availableNow": True} if spec.drain else {"processingTime": "0 seconds"}
    )
    writer = postings(spark, spec).writeStream.trigger(**trigger)
    return exact.start(writer, checkpoint=spec.checkpoint)


def postings(spark: SparkSession, spec: JobSpec) -> DataFrame:
    """(id, account, amount): each transfer takes from one account and gives to the other."""
    group: dict[str, Any] = (
        {"group_id": spec.group_id, "start": "earliest"} if spec.group_id else {}
    )
    frame = in_columns(
        exactum.read_kafka(
            spark,
            spec.source,
            bootstrap_servers=spec.bootstrap_servers,
            maxOffsetsPerTrigger=spec.max_offsets,
            **group,
        )
    )
    if spec.chained:
        return frame.selectExpr(f"from_json(CAST(value AS STRING), '{POSTING}') AS p").selectExpr(
            "p.*"
        )
    transfers = frame.selectExpr(f"from_json(CAST(value AS STRING), '{TRANSFER}') AS t")
    if spec.reading >= 0:
        plain = transfers.selectExpr("t.*")
        transfers = plain.mapInArrow(held_at(spec.reading, spec.folder), plain.schema).selectExpr(
            "struct(id, source, target, amount) AS t"
        )
    exploded = transfers.selectExpr("t.id AS id", f"explode({POSTINGS}) AS posting")
    rows = exploded.selectExpr("id", "posting.account AS account", "posting.amount AS amount")
    return rows.dropDuplicates(["id", "account"]) if spec.stateful else rows


def held_at(
    first_id: int, folder: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Hold the task that reads a transfer with this id or a later one; only once."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            last = max(batch.column("id").to_pylist(), default=-1)
            if last >= first_id and not Path(folder, "reached").exists():
                Fault("reading", action="hold", folder=folder).strike()
            yield batch

    return pass_on


def sink_of(kind: str, settings: Mapping[str, Any]) -> Any:
    if kind == "kafka":
        return exactum.KafkaSink(rows=records, **settings)
    if kind == "postgres":
        return exactum.PostgresSink(table="postings", **settings)
    if kind == "mysql":
        return exactum.MySQLSink(table="postings", **settings)
    return exactum.FileSink(partition_by=["account"], **settings)


def log_of(spec: JobSpec) -> Any:
    """The log where a query keeps it by default, or in a database."""
    query_id = json.loads(Path(spec.checkpoint, "metadata").read_text())["id"]
    if spec.log:
        from exactum.sql.files import open_files

        return SlotLog(open_files(spec.log, query_id), query_id)
    return SlotLog(Folder(Path(spec.checkpoint, DECISIONS)), query_id)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
