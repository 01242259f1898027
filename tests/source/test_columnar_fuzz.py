"""Topics of every kind, read in each way: the records that an independent reader sees, once."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.kit.kafka.broker import Broker
from tests.kit.source.columnar_ways import LAZY, MOVING, PACKED, raw_rows, run, way_of
from tests.kit.waiting import WAIT_MAX_S

RECORD_BYTES_MAX = 12_000_000
TIMESTAMP_TYPES = {1: 0, 2: 1}
"""librdkafka's numbers, and Spark's."""


def committed(broker: Broker, topic: str) -> list[tuple[Any, ...]]:
    """Every record that a read_committed reader sees, as ``raw_rows`` shows it, with its headers."""
    return [
        (
            *(r.key, r.value, topic.encode(), r.partition, r.offset),
            *(r.at_ms * 1000, TIMESTAMP_TYPES[r.at_type]),
            [{"key": name, "value": value} for name, value in r.headers] or None,
        )
        for r in broker.read(topic)
    ]


def a_value(some: random.Random) -> bytes | None:
    if some.random() < 0.2:
        return None
    large = some.random() < 0.005
    return some.randbytes(some.choice([1_000_000, 3_000_000, 10_000_000] if large else SIZES))


SIZES = [0, 0, 1, 7, 8, 9, 100, 1000]


def give(servers: str, topic: str, partitions: int, some: random.Random) -> None:
    """Some batches, each of transactions that commit or abort, or of none; in any codec."""
    for number in range(3):
        settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "message.max.bytes": RECORD_BYTES_MAX,
            "compression.type": some.choice(["none", "gzip", "snappy", "lz4", "zstd"]),
            "enable.idempotence": True,
        }
        transactional = some.random() < 0.5
        if transactional:
            settings["transactional.id"] = f"{topic}-{number}"
        producer = Producer(settings)
        if transactional:
            producer.init_transactions(WAIT_MAX_S)
        for _ in range(some.randint(1, 8)):
            if transactional:
                producer.begin_transaction()
            for _ in range(some.choice([1, 3, 50, 400])):
                key = some.choice([None, b"", b"k", some.randbytes(9)])
                headers = some.choice([None, [("h", b"x" * 50), ("h", None)]])
                at_ms = some.choice([1, 1_000, int(time.time() * 1000)])
                producer.produce(
                    topic,
                    a_value(some),
                    key,
                    partition=some.randrange(partitions),
                    headers=headers,
                    timestamp=at_ms,
                )
                producer.poll(0)
            assert producer.flush(WAIT_MAX_S) == 0
            if transactional:
                end = producer.commit_transaction
                (end if some.random() < 0.6 else producer.abort_transaction)(WAIT_MAX_S)


@pytest.mark.deep
@pytest.mark.parametrize("seed_default", [7, None])
def test_fuzz(
    make_stream: Any, broker: Broker, packed_jobs: list[Any], seed_default: int | None
) -> None:
    seed = int(os.environ.get("EXACTUM_SEED", seed_default or time.time_ns()))
    print(f"EXACTUM_SEED={seed}")
    some = random.Random(seed)
    topics = []
    for number in range(2 if seed_default else 4):
        partitions = some.randint(1, 4)
        kind = some.choice(["CreateTime", "LogAppendTime"])
        config = {
            "message.timestamp.type": kind,
            "max.message.bytes": RECORD_BYTES_MAX,
            "retention.ms": -1,  # some records say that they are of 1970
        }
        topics.append(broker.topic(f"fuzz{number}", partitions=partitions, config=config))
        give(broker.servers, topics[-1], partitions, some)
    expected = sorted((row for topic in topics for row in committed(broker, topic)), key=repr)
    headers = seed_default is not None or some.random() < 0.5
    if not headers:
        expected = [row[:-1] for row in expected]
    for way in (LAZY, PACKED, MOVING):  # Spark's rows are Spark's own reader
        stream = make_stream()
        options = {
            "maxOffsetsPerTrigger": some.choice([1_000, 5_000]),
            "minPartitions": some.choice([1, 9, 30]),
            "maxRecordsPerPartition": some.choice([50, 333, 10_000]),
            "includeHeaders": headers,
        }
        packed_jobs.clear()
        with way_of(stream.spark, way):
            assert run(stream, stream.read(topics, **options)) is None
        assert raw_rows(stream.out) == expected, f"{way}, {options}"
        assert bool(packed_jobs) == (way != LAZY)
