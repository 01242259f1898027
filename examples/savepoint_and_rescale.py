"""Totals with state in some partitions; stopped with a savepoint, it goes on in more of them.

    python savepoint_and_rescale.py --bootstrap-servers localhost:9092 --topic orders \\
        --totals totals --checkpoint /data/totals
    exactum savepoint create --checkpoint /data/totals --to /backup/totals-1 --stop
    exactum savepoint restore /backup/totals-1 --checkpoint /data/totals-5 --as same
    python savepoint_and_rescale.py --bootstrap-servers localhost:9092 --topic orders \\
        --totals totals --checkpoint /data/totals-5 --repartition 5

The query writes each customer's new total into the topic ``totals``. It runs until it is stopped,
and no order is counted twice or left out on the way. With ``--repartition`` the program does that
alone, and prints the ``exactum accept`` to type: Spark's repartition is a micro-batch that nobody
has decided. Then start it without ``--repartition``, which needs PySpark 4.2, in which it is
experimental.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import exactum


def sinks() -> exactum.KafkaSink:
    """The query's, for ``exactum accept --sinks``: by the variables KAFKA and TOTALS."""
    return exactum.KafkaSink(os.environ["TOTALS"], bootstrap_servers=os.environ["KAFKA"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("bootstrap-servers", "topic", "totals", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--repartition", type=int, help="partitions of the state")
    chosen = parser.parse_args()
    spark = exactum.local_session("totals", spark_sql_shuffle_partitions=2)
    if chosen.repartition:
        own = spark.newSession()  # Spark asks here which format the state has
        own.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
        own._streamingCheckpointManager.repartition(
            chosen.checkpoint, chosen.repartition, enforce_exactly_once_sink=True
        )
        done = max(int(file.name) for file in Path(chosen.checkpoint, "commits").glob("[0-9]*"))
        print(f"exactum accept --checkpoint {chosen.checkpoint} --batch {done + 1}")
        return
    servers = chosen.bootstrap_servers
    orders = exactum.read_kafka(spark, chosen.topic, bootstrap_servers=servers, start="earliest")
    totals = (
        orders.selectExpr(
            "CAST(key AS STRING) AS key", "CAST(CAST(value AS STRING) AS LONG) AS amount"
        )
        .groupBy("key")
        .agg({"amount": "sum"})
        .selectExpr("key", "CAST(`sum(amount)` AS STRING) AS value")
    )
    once = exactum.exactly_once(exactum.KafkaSink(chosen.totals, bootstrap_servers=servers))
    query = once.start(totals.writeStream.outputMode("update"), checkpoint=chosen.checkpoint)
    query.awaitTermination()


if __name__ == "__main__":
    main()
