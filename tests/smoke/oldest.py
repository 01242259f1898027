"""A smoke run on the oldest PySpark that is supported: `make smoke`. Not in `make test`: it installs a second Spark.

Kafka to Kafka exactly once, with Spark's note of the last batch taken away, so that the batch is asked for again.
"""

from __future__ import annotations

import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from confluent_kafka import Consumer, Producer

import exactum
from exactum.local import LocalKafka

RECORDS = 2_000


def main() -> None:
    with LocalKafka() as kafka, tempfile.TemporaryDirectory() as checkpoint:
        for topic in ("orders", "shouted"):
            kafka.create_topic(topic, partitions=2)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for number in range(RECORDS):
            producer.produce("orders", key=f"{number % 7}", value=f"order {number}")
        assert producer.flush(60) == 0
        spark = exactum.local_session("smoke", master="local[2]")
        run(spark, kafka, checkpoint)
        forget_last_batch(Path(checkpoint))
        run(spark, kafka, checkpoint)
        spark.stop()
        seen = read(kafka.bootstrap_servers)
    expected = sorted(f"ORDER {number}" for number in range(RECORDS))
    exact = sorted(seen) == expected
    print(
        f"PySpark {metadata.version('pyspark')}, Python {sys.version.split()[0]}: {len(seen)} of {RECORDS} records, "
        f"{'exact' if exact else 'NOT exact'}"
    )
    sys.exit(0 if exact else 1)


def run(spark: object, kafka: LocalKafka, checkpoint: str) -> None:
    """Drain the topic."""
    orders = exactum.read_kafka(spark, "orders", bootstrap_servers=kafka.bootstrap_servers, start="earliest")
    sink = exactum.KafkaSink("shouted", bootstrap_servers=kafka.bootstrap_servers)
    (
        orders.selectExpr("key", "upper(CAST(value AS STRING)) AS value")
        .writeStream.foreachBatch(exactum.exactly_once(sink))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def forget_last_batch(checkpoint: Path) -> None:
    """What the checkpoint looks like after a crash between the sink's commit and Spark's note of it."""
    last = max((f for f in (checkpoint / "commits").iterdir() if f.name.isdigit()), key=lambda f: int(f.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def read(servers: str) -> list[str]:
    """Everything a read_committed reader sees, until nothing came for five seconds."""
    settings = {"group.id": "smoke", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.subscribe(["shouted"])
    values: list[str] = []
    last_s = time.monotonic()
    while time.monotonic() - last_s < 5 or not values:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
            last_s = time.monotonic()
        assert time.monotonic() - last_s < 60, "the reader saw nothing for a minute"
    consumer.close()
    return values


if __name__ == "__main__":
    main()
