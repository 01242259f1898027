"""The query that a driver is trained with: it loads what streaming jobs load. Run as a module, in a
process of its own.

Arguments: bootstrap servers, a folder, and the JVM's options that make it leave its class archive.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count

import exactum
from exactum.spark.jvm import virtual_machine
from exactum.spark.session import java_options

SETTING = "spark.driver.defaultJavaOptions"


def main(bootstrap_servers: str, folder: Path, options: list[str]) -> int:
    """Returns the exit status of the JVM."""
    spark = exactum.local_session(
        "exactum-training", master="local[2]", **{SETTING: java_options(options)}
    )
    spark.sparkContext.setLogLevel("ERROR")
    produce(spark, bootstrap_servers)
    run(spark, bootstrap_servers, folder / "checkpoint")
    spark.stop()
    return virtual_machine.end()


def produce(spark: SparkSession, bootstrap_servers: str) -> None:
    rows = spark.range(100).selectExpr(
        "cast(id % 7 as string) as key", "to_json(struct(id)) as value"
    )
    rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap_servers).option(
        "topic", "in"
    ).save()


def run(spark: SparkSession, bootstrap_servers: str, checkpoint: Path) -> None:
    """Some epochs with state, from Kafka to Kafka."""
    records = exactum.read_kafka(
        spark, "in", bootstrap_servers=bootstrap_servers, start="earliest", maxOffsetsPerTrigger=25
    )
    counted = records.groupBy(col("key").cast("string")).agg(count("*").alias("n"))
    exact = exactum.exactly_once(exactum.KafkaSink("out", bootstrap_servers=bootstrap_servers))
    query = (
        counted.selectExpr("key", "cast(n as string) as value")
        .writeStream.foreachBatch(exact)
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
