"""Orders from Kafka into an audit topic, a PostgreSQL table and a Delta table: three targets that
stand or fall together.

    python orders_to_three.py --bootstrap-servers localhost:9092 --topic orders --audit audit \\
        --database postgresql://shop:secret@localhost/shop --lake /lake/orders \\
        --checkpoint /data/orders

The two tables are made if they are not there. ``make demo-tables`` kills it again and again.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame

import exactum


def as_record(rows: DataFrame) -> DataFrame:
    """The topic's own view of a micro-batch."""
    return rows.selectExpr("customer AS key", "to_json(struct(*)) AS value")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("bootstrap-servers", "topic", "audit", "database", "lake", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    chosen = parser.parse_args()
    spark = exactum.local_session("orders to three")
    orders = exactum.read_kafka(
        spark, chosen.topic, bootstrap_servers=chosen.bootstrap_servers, start="earliest"
    )
    columns = "id bigint not null, customer string, amount decimal(10,2)"
    rows = exactum.decode(orders, value=exactum.Json(columns)).select("value.*")
    audit = exactum.KafkaSink(
        chosen.audit, bootstrap_servers=chosen.bootstrap_servers, rows=as_record
    )
    database = exactum.PostgresSink(chosen.database, table="orders", create_table=True)
    lake = exactum.DeltaSink(chosen.lake)
    once = exactum.exactly_once(audit, database, lake)
    writer = rows.writeStream.trigger(processingTime="500 milliseconds")
    once.start(writer, checkpoint=chosen.checkpoint).awaitTermination()


if __name__ == "__main__":
    main()
