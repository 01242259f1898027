"""A broker as the tests see it: topics of their own, a plain producer and a plain reader. And what
exactum reads and writes there.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from pyspark.sql import DataFrame, SparkSession

import exactum
from tests.kit.kafka.transactions import Record, read_all
from tests.kit.waiting import WAIT_MAX_S, await_true

_numbers = itertools.count(1)
Sent = bytes | str | None


def producer_to(servers: str, settings: Mapping[str, Any] = MappingProxyType({})) -> Producer:
    """Its retries neither double records nor change their order: to a new topic they are usual."""
    return Producer({"bootstrap.servers": servers, "enable.idempotence": True, **settings})


class Broker:
    """``kafka`` may be of several nodes, or of a kind that a test starts itself."""

    def __init__(self, kafka: Any) -> None:
        self.kafka = kafka

    @property
    def servers(self) -> str:
        return str(self.kafka.bootstrap_servers)

    def _new_producer(self, **settings: Any) -> Producer:
        return producer_to(self.servers, {"log_level": 0, **settings})

    def topic(
        self,
        name: str = "topic",
        partitions: int = 4,
        config: Mapping[str, str | int] | None = None,
    ) -> str:
        """A new one; its name is unique."""
        unique = f"{name}-{os.getpid()}-{next(_numbers)}"
        self.kafka.create_topic(
            unique, partitions=partitions, **({"config": config} if config else {})
        )
        return unique

    def made_anew(self, topic: str, partitions: int = 1) -> None:
        """Deleted, and created again by its name."""
        self.kafka.delete_topic(topic)
        self.kafka.create_topic(topic, partitions=partitions)

    def grow(self, topic: str, partitions: int) -> None:
        """To so many partitions, of which whoever asks the broker then knows."""
        admin = self.kafka.admin()  # what it is asked is dropped with it
        for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
            future.result(WAIT_MAX_S)
        seen = lambda: admin.list_topics(topic, timeout=WAIT_MAX_S).topics[topic].partitions  # noqa: E731
        await_true(lambda: len(seen()) == partitions, f"{topic} has {partitions} partitions")

    def configure(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = self.kafka.admin()
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(WAIT_MAX_S)

    def produce(
        self, topic: str, *values: Sent, key: Sent = None, partition: int = -1, **settings: Any
    ) -> None:
        """All are there when this returns. ``settings``: the producer's, with _ for the dots."""
        own = {name.replace("_", "."): value for name, value in settings.items()}
        producer = self._new_producer(**own)  # which knows partitions that were added
        for value in values:
            producer.produce(topic, value, key, partition)
        assert producer.flush(WAIT_MAX_S) == 0

    def initialised(self, transactional_id: str) -> Producer:
        """A producer of somebody else's: what this id had open is aborted."""
        producer = self._new_producer(**{"transactional.id": transactional_id})
        producer.init_transactions(WAIT_MAX_S)
        return producer

    def transaction(self, transactional_id: str, topic: str, *values: Sent) -> Producer:
        """Its transaction is open, with a record of each value in a partition of its own."""
        producer = self.initialised(transactional_id)
        producer.begin_transaction()
        for partition, value in enumerate(values):
            producer.produce(topic, value, partition=partition)
        assert producer.flush(WAIT_MAX_S) == 0
        return producer

    @contextmanager
    def member(self, group: str, topic: str, **settings: Any) -> Iterator[Consumer]:
        """A consumer of somebody else's, which is in the group until the block ends, or it is closed."""
        own = {name.replace("_", "."): value for name, value in settings.items()}
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, **own})
        try:
            consumer.subscribe([topic])
            await_true(
                lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()),
                f"a consumer is in the group {group}",
            )
            yield consumer
        finally:
            consumer.close()

    def read(self, topic: str, **how: Any) -> list[Record]:
        """See ``read_all``."""
        return read_all(self.servers, topic, **how)

    def values(self, topic: str, **how: Any) -> list[bytes | None]:
        return [record.value for record in self.read(topic, **how)]

    def end(self, topic: str, partition: int = 0) -> int:
        """The offset after the last record, visible or not."""
        settings = {"group.id": "end", "isolation.level": "read_uncommitted"}
        consumer = Consumer({"bootstrap.servers": self.servers, **settings})
        try:
            place = TopicPartition(topic, partition)
            return int(consumer.get_watermark_offsets(place, timeout=WAIT_MAX_S)[1])
        finally:
            consumer.close()

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Records, as retention does; with the offset -1 all of them. Offsets go on."""
        admin = self.kafka.admin()  # what it is asked is dropped with it
        (future,) = admin.delete_records([TopicPartition(topic, partition, offset)]).values()
        future.result(WAIT_MAX_S)

    def empty(self, topic: str, partitions: int = 1) -> None:
        for partition in range(partitions):
            self.delete_before(topic, partition, -1)

    def sink(self, topic: str | None, **settings: Any) -> exactum.KafkaSink:
        return exactum.KafkaSink(topic, bootstrap_servers=self.servers, **settings)

    def by_spark(self, spark: SparkSession, **options: str) -> DataFrame:
        """A stream of Spark's own reader; ``options`` are Spark's."""
        given = {"kafka.bootstrap.servers": self.servers, "startingOffsets": "earliest", **options}
        return spark.readStream.format("kafka").options(**given).load()

    def frame(self, spark: SparkSession, topics: Any, **options: Any) -> DataFrame:
        return exactum.read_kafka(spark, topics, bootstrap_servers=self.servers, **options)
