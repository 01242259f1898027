"""One row for each key, always of the last complete micro-batch: totals of orders, in PostgreSQL.

    python upsert_sink.py --bootstrap-servers localhost:9092 --topic orders \\
        --database postgresql://user:password@localhost/shop --table totals \\
        --checkpoint /data/totals

An order's key is a customer, its value an amount. The query reads what there is, and ends; without
the trigger it goes on. Kill it whenever you like and start it again: the totals are those of every
order, once. A row is replaced by key, so what is written again stays the same. The totals
themselves are right because Spark's state goes forward with the table, or not at all.
"""

from __future__ import annotations

import argparse

import exactum


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("bootstrap-servers", "topic", "database", "table", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    chosen = parser.parse_args()
    spark = exactum.local_session("totals")
    orders = exactum.read_kafka(
        spark,
        chosen.topic,
        bootstrap_servers=chosen.bootstrap_servers,
        start="earliest",
        maxOffsetsPerTrigger=200,
    )
    totals = (
        orders.selectExpr(
            "CAST(key AS STRING) AS customer", "CAST(CAST(value AS STRING) AS LONG) AS amount"
        )
        .groupBy("customer")
        .agg({"*": "count", "amount": "sum"})
        .selectExpr("customer", "`count(1)` AS orders", "`sum(amount)` AS amount")
    )
    sink = exactum.PostgresSink(
        chosen.database, table=chosen.table, mode="upsert", key=["customer"], create_table=True
    )
    writer = totals.writeStream.outputMode("update").trigger(availableNow=True)
    query = exactum.exactly_once(sink).start(writer, checkpoint=chosen.checkpoint)
    query.awaitTermination()


if __name__ == "__main__":
    main()
