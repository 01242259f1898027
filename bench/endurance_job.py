"""A stateful query of many small epochs, from Kafka to Kafka, with offsets outwards. A process of
its own.

Usage: python -m bench.endurance_job BOOTSTRAP_SERVERS SOURCE TARGET CHECKPOINT GROUP
RECORDS_PER_EPOCH
"""

from __future__ import annotations

import sys

import exactum


def main(
    servers: str, source: str, target: str, checkpoint: str, group: str, per_epoch: str
) -> None:
    spark = exactum.local_session("endurance", master="local[2]", spark_sql_shuffle_partitions=2)
    spark.sparkContext.setLogLevel("ERROR")
    frame = exactum.read_kafka(
        spark,
        source,
        bootstrap_servers=servers,
        group_id=group,
        start="earliest",
        maxOffsetsPerTrigger=per_epoch,
    )
    counted = frame.selectExpr("substr(CAST(value AS STRING), 1, 1) AS key").groupBy("key").count()
    totals = counted.selectExpr("key", "CAST(count AS STRING) AS value")
    once = exactum.exactly_once(exactum.KafkaSink(target, bootstrap_servers=servers))
    writer = totals.writeStream.outputMode("update").trigger(availableNow=True)
    query = once.start(writer, checkpoint=checkpoint)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
