"""The bank's query: transfers in from Kafka; two postings for each into Kafka, PostgreSQL, MariaDB,
files, tables of a lake and an HTTP server without transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import exactum
from tests.kit.crash.deaths import Fault
from tests.kit.crash.queries import Query, Spec
from tests.kit.lake.iceberg import Lake
from tests.kit.source.in_columns import in_columns
from tests.kit.targets.api import ApiSink

TRANSFER = "id long, source string, target string, amount long"
POSTINGS = (
    "transform(array(1, -1), s -> named_struct('account', if(s > 0, t.target, t.source), "
    "'amount', s * t.amount))"
)


def records(batch: DataFrame) -> DataFrame:
    return batch.selectExpr("account AS key", "to_json(struct(id, account, amount)) AS value")


def iceberg(folder: str) -> exactum.IcebergSink:
    return Lake(Path(folder)).sink(partition_by="account")


SINKS: Mapping[str, Callable[..., Any]] = {
    "kafka": partial(exactum.KafkaSink, rows=records),
    "postgres": partial(exactum.PostgresSink, table="postings"),
    "mysql": partial(exactum.MySQLSink, table="postings"),
    "files": partial(exactum.FileSink, partition_by=["account"]),
    "delta": partial(exactum.DeltaSink, partition_by="account"),
    "iceberg": iceberg,
    "api": partial(ApiSink, rows_per_send_max=20, tries_max=3, backoff_ms=50),
}


def bank(spark: SparkSession, spec: Spec) -> Query:
    """Each transfer takes from one account and gives to the other. Of the spec:

    sinks       settings of each, by its name in ``SINKS``
    group_id    takes the offsets
    stateful    each posting counts once, however often its transfer is in the input
    reading     the id of a transfer: the first task that reads it, or a later one, is held before it
                has written anything
    """
    group = {"group_id": spec["group_id"], "start": "earliest"} if spec.get("group_id") else {}
    read = exactum.read_kafka(
        spark,
        spec["source"],
        bootstrap_servers=spec["bootstrap_servers"],
        maxOffsetsPerTrigger=spec.get("max_offsets", 60),
        **group,
    )
    transfers = in_columns(read).selectExpr(f"from_json(CAST(value AS STRING), '{TRANSFER}') AS t")
    if "reading" in spec:
        plain = transfers.selectExpr("t.*")
        held = plain.mapInArrow(held_at(spec["reading"], spec["folder"]), plain.schema)
        transfers = held.selectExpr("struct(id, source, target, amount) AS t")
    exploded = transfers.selectExpr("t.id AS id", f"explode({POSTINGS}) AS posting")
    rows = exploded.selectExpr("id", "posting.account AS account", "posting.amount AS amount")
    if spec.get("stateful"):
        rows = rows.dropDuplicates(["id", "account"])
    return Query(rows, [SINKS[kind](**own) for kind, own in spec["sinks"].items()])


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
