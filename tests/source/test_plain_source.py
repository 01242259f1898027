"""A source made by Spark's own reader, ``spark.readStream.format("kafka")``, under
``exactly_once``.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame

from tests.kit.kafka.broker import Broker
from tests.kit.spark.commit_log import forget_last_batch
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.broker, pytest.mark.spark]

RECORDS = 10
WARNED = "kafka.isolation.level is not read_committed"


def plain(stream: Any, topic: str, **options: str) -> DataFrame:
    servers = stream.broker.servers
    reader = stream.spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), value)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


def abort_some(stream: Any, topic: str) -> None:
    """Records of a transaction that is aborted."""
    stream.broker.transaction(topic, topic, *[b"aborted"] * 2).abort_transaction(WAIT_MAX_S)


def test_plain_source_is_exact(
    stream: Any, topics: Any, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """It works as read_kafka's does: each committed record once, also for a batch that is run
    again.
    """
    name = broker.topic("plain", partitions=2)
    topics.give(name, RECORDS)
    abort_some(stream, name)
    frame = plain(stream, name, kafka_isolation_level="read_committed")
    assert stream.run(frame) is None
    expected = [(name, p, o) for p in (0, 1) for o in range(RECORDS)]
    assert stream.rows() == expected
    forget_last_batch(stream.checkpoint)
    assert stream.run(plain(stream, name, kafka_isolation_level="read_committed")) is None
    assert stream.rows() == expected
    assert WARNED not in caplog.text
    topics.made_anew(name)
    topics.give(name, RECORDS * 3)
    error = stream.run(plain(stream, name, kafka_isolation_level="read_committed"))
    assert "deleted and made anew" in (error or ""), "its topics are watched as well"


@pytest.mark.variants(1)
@pytest.mark.parametrize("level", [{}, {"kafka_isolation_level": "read_uncommitted"}])
def test_plain_source_that_reads_uncommitted(
    level: dict[str, str],
    stream: Any,
    topics: Any,
    broker: Broker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kafka's default isolation level shows aborted records, so the log warns of it, once for
    each run.
    """
    name = broker.topic("uncommitted", partitions=2)
    topics.give(name, RECORDS)
    abort_some(stream, name)
    assert stream.run(plain(stream, name, **level)) is None
    assert len(stream.rows()) == 2 * RECORDS + 2, "the aborted ones too"
    assert [r.levelname for r in caplog.records if WARNED in r.getMessage()] == ["WARNING"]
