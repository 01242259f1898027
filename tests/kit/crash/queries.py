"""The queries of jobs that are killed: what each reads, makes of it and writes where. Those over the
targets of a bank are in ``tests.kit.targets.bank``, those into tables of a lake in
``tests.kit.lake.job``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import exactum
from tests.kit.source.in_columns import in_columns
from tests.kit.spark.each_batch import around_each_batch
from tests.kit.spark.files import stream_of
from tests.kit.waiting import await_true

Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Query:
    """``settings``: what else ``exactly_once`` is given."""

    frame: DataFrame
    sinks: Sequence[Any]
    mode: str = "append"
    settings: Mapping[str, Any] = field(default_factory=dict)


def records(spark: SparkSession, spec: Spec, topic: str = "", offsets_max: int = 0) -> DataFrame:
    return exactum.read_kafka(
        spark,
        topic or spec["source"],
        bootstrap_servers=spec["bootstrap_servers"],
        maxOffsetsPerTrigger=offsets_max or spec.get("max_offsets", 60),
    )


def kafka_sinks(spec: Spec) -> list[Any]:
    own = {"bootstrap_servers": spec["bootstrap_servers"], **spec.get("sink", {})}
    return [exactum.KafkaSink(topic, **own) for topic in spec["outputs"]]


def _texts(spark: SparkSession, spec: Spec) -> DataFrame:
    frame = in_columns(records(spark, spec))
    return frame.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")


def upper(spark: SparkSession, spec: Spec) -> Query:
    """With ``postgres``, a URL, the table ``copy`` there takes the same rows, in the same epochs."""
    # Not upper(): its first use in a JVM builds tables for all of Unicode, a second of CPU for each
    # life.
    rows = _texts(spark, spec).selectExpr("key", "concat('N', substring(value, 2)) AS value")
    sinks = kafka_sinks(spec)
    if "postgres" in spec:
        sinks.append(exactum.PostgresSink(spec["postgres"], table="copy", create_table=True))
    return Query(rows, sinks)


def total(spark: SparkSession, spec: Spec) -> Query:
    """Count and sum of each key so far."""
    numbers = _texts(spark, spec).selectExpr("key", "CAST(substr(value, 2) AS LONG) AS number")
    totals = numbers.groupBy("key").agg({"*": "count", "number": "sum"})
    rows = totals.selectExpr("key", "concat(`count(1)`, ':', `sum(number)`) AS value")
    return Query(rows, kafka_sinks(spec), "update")


# ---- over two topics, ``sources``: each with its records in an epoch -----------------------------


def _both(spark: SparkSession, spec: Spec) -> list[DataFrame]:
    return [in_columns(records(spark, spec, *source)) for source in spec["sources"]]


def union(spark: SparkSession, spec: Spec) -> Query:
    """Every record with where it comes from, and the time of the epoch that read it."""
    fast, slow = _both(spark, spec)
    place = (
        "concat_ws('/', topic, partition, offset, CAST(value AS STRING), "
        "unix_millis(current_timestamp()))"
    )
    rows = fast.unionByName(slow).selectExpr("CAST(key AS STRING) AS key", f"{place} AS value")
    return Query(rows, kafka_sinks(spec))


def join(spark: SparkSession, spec: Spec) -> Query:
    """Every pair of a fast and a slow record with the same key."""
    fast, slow = (
        frame.selectExpr("CAST(key AS STRING) AS key", f"CAST(value AS STRING) AS {name}")
        for frame, name in zip(_both(spark, spec), ("fast", "slow"), strict=True)
    )
    rows = fast.join(slow, "key").selectExpr("key", "concat(fast, ':', slow) AS value")
    return Query(rows, kafka_sinks(spec))


# ---- over files, of which each is one epoch ------------------------------------------------------


def rows_of_files(spark: SparkSession, spec: Spec) -> Query:
    sink = exactum.FileSink(spec["out"], format="json")
    rows = stream_of(spark, spec["input"], "key string, number long")
    return Query(rows, [sink], settings={"decision_log": None})


def sums_of_files(spark: SparkSession, spec: Spec) -> Query:
    """By key. Once two batches are done, there is a snapshot of them."""
    state = Path(spec["checkpoint"], "state")

    def with_snapshots(write: Callable[[], None], frame: DataFrame, batch_id: int) -> None:
        write()
        if batch_id > 2:
            await_true(lambda: any(state.rglob("*.zip")), "a snapshot of the state")

    around_each_batch(with_snapshots)
    plain = rows_of_files(spark, spec)
    sums = plain.frame.groupBy("key").sum("number").toDF("key", "number")
    return Query(sums, plain.sinks, "update", plain.settings)
