"""A smoke run on whatever PySpark is installed: `make smoke` takes the oldest and the newest that
are supported. Not in `make test`: each needs an environment of its own.

Kafka to Kafka exactly once, as it comes (first up to a stop) and through `decode` with bad records
in several plans, and the rows of one key into a topic of their own; each query with Spark's note of
its last batch taken away once, so that the batch is asked for again.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

import exactum
from exactum.local import LocalKafka

RECORDS = 2_000
BAD_EVERY = 100
KEYS = 7
CHOSEN = "3"
PARTITIONS = 2
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "k", "type": "int"}],
}
Records = Counter[tuple[str | None, bytes]]


def text(number: int) -> bytes:
    return f"order {number}".encode()


def as_json(number: int) -> bytes:
    return json.dumps({"id": number, "k": number % KEYS}).encode()


def as_avro(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(ORDER, named_schemas={}), {"id": number, "k": number % KEYS}
    )
    return out.getvalue()


def ids(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("key", "CAST(value.id AS STRING) AS value")


def chosen(frame: DataFrame) -> DataFrame:
    return frame.where(f"key = '{CHOSEN}'")


def totals(frame: DataFrame) -> DataFrame:
    return (
        frame.groupBy("value.k")
        .count()
        .selectExpr("CAST(k AS STRING) AS key", "CAST(count AS STRING) AS value")
    )


@dataclass(frozen=True)
class Case:
    """A query over numbered records, every hundredth of which is ``bad``; ``format`` None: as
    they come.
    """

    name: str
    encoded: Callable[[int], bytes]
    transformed: Callable[[DataFrame], DataFrame]
    format: Any = None
    bad: bytes = b""

    def is_bad(self, number: int) -> bool:
        return bool(self.bad) and number % BAD_EVERY == 0

    def records(self) -> list[bytes]:
        return [
            self.bad + self.encoded(n) if self.is_bad(n) else self.encoded(n)
            for n in range(RECORDS)
        ]


CASES = [
    Case(
        "plain",
        text,
        lambda frame: frame.selectExpr("key", "upper(CAST(value AS STRING)) AS value"),
    ),
    Case("text", text, lambda frame: frame.select("key", "value"), exactum.String(), b"\xff"),
    Case("json", as_json, ids, exactum.Json("id bigint not null, k int not null"), b"{"),
    Case("json-totals", as_json, totals, exactum.Json("id bigint not null, k int not null"), b"{"),
    Case("avro", as_avro, ids, exactum.Avro(ORDER), b"\x02\x02"),
]


def expected(case: Case) -> Records:
    good = [n for n in range(RECORDS) if not case.is_bad(n)]
    if case.transformed is totals:
        return Counter(
            (str(k), str(n).encode()) for k, n in Counter(n % KEYS for n in good).items()
        )
    values = {"plain": lambda n: text(n).upper(), "text": text}.get(
        case.name, lambda n: str(n).encode()
    )
    return Counter((str(n % KEYS), values(n)) for n in good)


def main() -> None:
    with LocalKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        spark = exactum.local_session("smoke", master="local[2]", spark_sql_shuffle_partitions=2)
        wrong = [
            case.name
            for case in CASES
            if not is_exact(spark, kafka, case, Path(folder) / case.name)
        ]
        spark.stop()
    where = f"PySpark {metadata.version('pyspark')}, Python {sys.version.split()[0]}"
    print(f"{where}: {f'NOT exact: {wrong}' if wrong else 'exact'}")
    sys.exit(1 if wrong else 0)


def is_exact(spark: SparkSession, kafka: LocalKafka, case: Case, checkpoint: Path) -> bool:
    """Run the case twice, the second time as after a crash; its output and its dead letters are
    what they must be.
    """
    source, target, few, rejected = (f"{case.name}-{what}" for what in ("in", "out", "few", "bad"))
    for topic in (source, target, few, rejected):
        kafka.create_topic(topic, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number, value in enumerate(case.records()):
        producer.produce(source, key=f"{number % KEYS}", value=value)
    assert producer.flush(60) == 0
    if case.format is None:
        run(spark, kafka, case, checkpoint, stop={source: {0: 200, 1: 0}})
        assert read(kafka.bootstrap_servers, target).total() == 200, "it ends at its stop"
    run(spark, kafka, case, checkpoint)
    forget_last_batch(checkpoint)
    run(spark, kafka, case, checkpoint)
    seen, letters = read(kafka.bootstrap_servers, target), read(kafka.bootstrap_servers, rejected)
    bad = Counter(
        (f"{n % KEYS}", value) for n, value in enumerate(case.records()) if case.is_bad(n)
    )
    of_one = Counter(
        {record: count for record, count in expected(case).items() if record[0] == CHOSEN}
    )
    exact = (
        seen == expected(case) and letters == bad and read(kafka.bootstrap_servers, few) == of_one
    )
    print(
        f"{case.name}: {seen.total()} records, {letters.total()} dead letters, "
        f"{'exact' if exact else 'NOT exact'}"
    )
    return exact


def run(
    spark: SparkSession, kafka: LocalKafka, case: Case, checkpoint: Path, stop: Any = None
) -> None:
    """Drain the topic, up to the stop."""
    servers = kafka.bootstrap_servers
    frame = exactum.read_kafka(
        spark, f"{case.name}-in", bootstrap_servers=servers, start="earliest", stop=stop
    )
    if case.format is not None:
        frame = exactum.decode(frame, case.format, exactum.String(), on_error="dead_letter")
    sink, dead = (
        exactum.KafkaSink(f"{case.name}-{what}", bootstrap_servers=servers)
        for what in ("out", "bad")
    )
    few = exactum.KafkaSink(f"{case.name}-few", bootstrap_servers=servers, rows=chosen)
    once = exactum.exactly_once(sink, few, dead_letters=dead)
    mode = "update" if case.transformed is totals else "append"
    writer = case.transformed(frame).writeStream.outputMode(mode).trigger(availableNow=True)
    once.start(writer, checkpoint=checkpoint).awaitTermination()


def forget_last_batch(checkpoint: Path) -> None:
    """What the checkpoint looks like after a crash between the sink's commit and Spark's note of
    it.
    """
    last = max(
        (f for f in (checkpoint / "commits").iterdir() if f.name.isdigit()),
        key=lambda f: int(f.name),
    )
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def read(servers: str, topic: str) -> Records:
    """Everything that a read_committed reader sees, to the ends of the partitions."""
    settings = {
        "group.id": "smoke",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign(
        [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)]
    )
    seen: Records = Counter()
    ended: set[int] = set()
    deadline_s = time.monotonic() + 60
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline_s, f"{topic} was not read to its end within a minute"
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen[message.key().decode(), message.value()] += 1
        elif message is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    consumer.close()
    return seen


if __name__ == "__main__":
    main()
