"""exactum and Spark's own sinks: one driver that runs until it is killed. A process of its own.

Usage: python -m bench.peers.spark_peer NAME=VALUE...
(see ``order.Order``; engine is exactum or spark)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import exactum
from bench.loader import append_by_jdbc, driver_jars
from bench.peers.order import Order
from bench.peers.settings import (
    BATCH_BYTES,
    BUFFER_BYTES,
    JAVA_HEAP_MB,
    LIBRDKAFKA,
    LINGER_MS,
    PARALLELISM,
)
from exactum.local import spark_kafka_jars

ID = "CAST(substring(CAST(value AS STRING), 1, 16) AS BIGINT)"
SENT = "CAST(substring(CAST(value AS STRING), 17, 16) AS BIGINT)"
JAVA_PRODUCER: dict[str, str | int] = {
    "kafka.acks": "all",
    "kafka.linger.ms": LINGER_MS,
    "kafka.batch.size": BATCH_BYTES,
    "kafka.buffer.memory": BUFFER_BYTES,
    "kafka.compression.type": "none",
}


def main(order: Order) -> None:
    own = order.engine == "exactum"
    spark = session(order, own)
    if own:
        frame = read(spark, order)
    else:
        frame = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", order.servers)
            .option("subscribe", order.source)
            .option("startingOffsets", "earliest")
            .option("kafka.isolation.level", "read_committed")
            .load()
        )
    interval_ms = 0 if order.trigger == "at once" else order.interval_ms
    writer = (
        transformed(frame, order.job)
        .writeStream.outputMode("update" if order.job == "aggregate" else "append")
        .trigger(processingTime=f"{interval_ms} milliseconds")
    )
    checkpoint = Path(order.folder, "checkpoint")
    if own:
        query: Any = guaranteed(order).start(writer, checkpoint=checkpoint)
    else:
        query = spark_alone(writer, order).option("checkpointLocation", str(checkpoint)).start()
    # Whoever kills this process must know which of two (a standby waits before this line) is at
    # work.
    Path(order.folder, "pid").write_text(str(os.getpid()))
    query.awaitTermination()


def spark_alone(writer: Any, order: Order) -> Any:
    """Spark's own way."""
    if order.job == "postgres":
        writer = writer.foreachBatch(
            lambda rows, _: append_by_jdbc(columns(rows), "postgres", order.postgres_url)
        )
    elif order.job == "fan-out":
        writer = writer.foreachBatch(lambda rows, _: fan_out(rows, order))
    else:
        writer = (
            writer.format("kafka")
            .option("kafka.bootstrap.servers", order.servers)
            .option("topic", order.target)
        )
        writer = writer.options(**JAVA_PRODUCER)
    return writer


def read(spark: SparkSession, order: Order) -> DataFrame:
    return exactum.read_kafka(
        spark, order.source, bootstrap_servers=order.servers, start="earliest"
    )


def session(order: Order, own: bool) -> SparkSession:
    """Both have what exactum's local session sets: class archive, RocksDB, changelog
    checkpoints.
    """
    conf: dict[str, Any] = {
        "spark.exactum.warmWorkers": own,
        "spark.driver.memory": f"{JAVA_HEAP_MB}m",
        "spark.local.dir": order.folder,
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={order.folder}",
        "spark.sql.shuffle.partitions": PARALLELISM,
    }
    if order.table and not own:
        conf["spark.jars"] = ",".join([*map(str, spark_kafka_jars()), *driver_jars("postgres")])
    spark = exactum.local_session("peers", master=f"local[{PARALLELISM}]", **conf)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def transformed(frame: DataFrame, job: str) -> DataFrame:
    if job != "aggregate":
        return frame.select("value")
    return (
        frame.selectExpr("CAST(key AS STRING) AS key", f"{ID} AS id")
        .groupBy("key")
        .agg({"id": "sum", "*": "count"})
        .selectExpr("key", "concat_ws(',', `count(1)`, `sum(id)`) AS value")
    )


def columns(rows: DataFrame) -> DataFrame:
    """The rows of the table."""
    return rows.selectExpr(
        f"{ID} AS id", f"{SENT} AS sent", "substring(CAST(value AS STRING), 33) AS text"
    )


def fan_out(rows: DataFrame, order: Order) -> None:
    """What Spark's guide recommends: keep the batch, write it twice."""
    rows.persist()
    try:
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", order.servers)
        writer.option("topic", order.target).options(**JAVA_PRODUCER).save()
        append_by_jdbc(columns(rows), "postgres", order.postgres_url)
    finally:
        rows.unpersist()


def guaranteed(order: Order) -> Any:
    sinks: list[Any] = []
    if order.target:
        sinks.append(
            exactum.KafkaSink(order.target, bootstrap_servers=order.servers, producer=LIBRDKAFKA)
        )
    if order.table:
        sinks.append(exactum.PostgresSink(order.postgres_url, table=order.table, rows=columns))
    return (exactum.exactly_once if order.guarantee == "exactly once" else exactum.at_least_once)(
        *sinks
    )


if __name__ == "__main__":
    main(Order.parse(sys.argv[1:]))
