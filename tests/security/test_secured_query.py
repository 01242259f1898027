"""A whole query on a real SASL_SSL broker that denies what no ACL allows: a control stream with
credentials of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import exactum
from exactum import events
from tests.kit.errors import text_of
from tests.kit.kafka.transactions import read_all
from tests.kit.security.rights import SECRET, SECURED, add_users, documented
from tests.kit.servers.kafka_cluster import KafkaCluster
from tests.kit.spark.commit_log import forget_last_batch
from tests.kit.spark.ended import ended
from tests.kit.spark.files import InputFiles, stream_of
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.spark, *SECURED]

RULES, OUTPUT = "guarded-weights", "guarded-output"
USER = "weigher"


@pytest.fixture(scope="module")
def secure(secured_kafka: KafkaCluster) -> KafkaCluster:
    """``USER`` has the documented rights on rules and output."""
    cluster = secured_kafka
    for name in (RULES, OUTPUT):
        cluster.create_topic(name, partitions=1)
    rights = documented("control.md", {"control topic": ("topic", RULES)})
    rights += documented(
        "kafka.md",
        {
            "output topic": ("topic", OUTPUT),
            "transactional id": ("transactional_id", ""),
            "cluster": ("cluster", "kafka-cluster"),
        },
    )
    add_users(cluster, {USER: rights})
    return cluster


class Weighing:
    """A query over files of numbers, each times a weight from the rules, into the output topic."""

    def __init__(self, spark: SparkSession, cluster: KafkaCluster, folder: Path) -> None:
        self.spark, self.cluster = spark, cluster
        self.input, self.checkpoint = InputFiles(folder / "input"), folder / "checkpoint"
        self.events: list[Any] = []

    def put(self, topic: str, key: bytes, value: bytes) -> None:
        settings = self.cluster.client_settings("admin")
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, **settings})
        producer.produce(topic, value, key)
        assert producer.flush(WAIT_MAX_S) == 0

    def give(self, *values: int) -> None:
        """One file, which is one batch."""
        self.input.give({"v": value} for value in values)

    def sink(self, topic: str, **arguments: Any) -> exactum.KafkaSink:
        return exactum.KafkaSink(
            topic,
            bootstrap_servers=self.cluster.bootstrap_servers,
            producer=self.cluster.client_settings(USER),
            **arguments,
        )

    def run(self) -> str | None:
        """Until all files are read; the text of the error, or None."""
        rules = exactum.control_stream(
            RULES,
            bootstrap_servers=self.cluster.bootstrap_servers,
            value=int,
            consumer=self.cluster.client_settings(USER),
        )
        weigh = udf(lambda v: str(v * rules.current()["weight"]), "string")
        numbers = stream_of(self.spark, self.input.folder, "v long")
        frame = numbers.select(weigh("v").alias("value"))
        batch = exactum.exactly_once(self.sink(OUTPUT), control=rules, on_event=self.events.append)
        writer = frame.writeStream.trigger(availableNow=True)
        return text_of(ended(lambda: batch.start(writer, checkpoint=self.checkpoint)))

    def written(self) -> Sequence[bytes | None]:
        """What a reader of committed records finds in the output."""
        login = self.cluster.client_settings("admin")
        return [r.value for r in read_all(self.cluster.bootstrap_servers, OUTPUT, login=login)]


@pytest.fixture
def weighing(spark: SparkSession, secure: KafkaCluster, tmp_path: Path) -> Weighing:
    return Weighing(spark, secure, tmp_path)


@pytest.mark.deep
def test_rules_with_credentials_are_those_of_their_epoch_through_a_crash(
    weighing: Weighing,
) -> None:
    """A decided epoch that Spark asks for again is redelivered, not written again; the next one has
    the new rule. The password is nowhere in the checkpoint.
    """
    weighing.put(RULES, b"weight", b"10")
    weighing.give(1, 2)
    assert weighing.run() is None
    assert weighing.written() == [b"10", b"20"]
    weighing.put(RULES, b"weight", b"100")
    forget_last_batch(weighing.checkpoint)
    weighing.give(3)
    assert weighing.run() is None
    assert weighing.written() == [b"10", b"20", b"300"]
    assert [e for e in weighing.events if isinstance(e, events.EpochRedelivered)]
    stored = [file for file in weighing.checkpoint.rglob("*") if file.is_file()]
    assert stored and not [file for file in stored if SECRET.encode() in file.read_bytes()]
