"""A topic as plain clients see it, and a query over topics into JSON files whose rows say what
was read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicCollection,
    TopicPartition,
)
from pyspark.sql import DataFrame, SparkSession

import exactum
from exactum import Query, events
from exactum.local import LocalKafka
from tests.kit.errors import text_of
from tests.kit.kafka.broker import Broker, producer_to
from tests.kit.spark.ended import ended
from tests.kit.spark.files import rows_in
from tests.kit.waiting import WAIT_MAX_S, await_true

T = TypeVar("T")
EPOCH_MS = int(time.time()) * 1000 - 3_600_000
"""The timestamp of each partition's first record, an hour ago; the next ones follow a second
apart.
"""


class Topics(Broker):
    """Topics of which it is known how many records they were given."""

    def __init__(self, kafka: LocalKafka) -> None:
        super().__init__(kafka)
        self.admin = kafka.admin()
        self._sent: dict[tuple[str, int], int] = {}

    def give(self, topic: str, records: int, partitions: int = 2) -> None:
        """``records`` more in each partition, with timestamps a second apart."""
        producer = producer_to(self.servers)
        for partition in range(partitions):
            first = self._sent.get((topic, partition), 0)
            for number in range(first, first + records):
                producer.produce(
                    topic, b"x", partition=partition, timestamp=EPOCH_MS + number * 1000
                )
            self._sent[topic, partition] = first + records
        assert producer.flush(WAIT_MAX_S) == 0

    @contextmanager
    def open_transaction(self, topic: str) -> Iterator[Producer]:
        """A transaction with one record, the next in time, in partition 0."""
        producer = self.initialised(f"open-{topic}")
        producer.begin_transaction()
        number = self._sent.get((topic, 0), 0)
        producer.produce(topic, b"x", partition=0, timestamp=EPOCH_MS + number * 1000)
        self._sent[topic, 0] = number + 1
        assert producer.flush(WAIT_MAX_S) == 0
        yield producer

    def id_of(self, topic: str) -> str:
        """As librdkafka writes it."""
        found = self.admin.describe_topics(TopicCollection([topic]))[topic]
        return str(found.result(WAIT_MAX_S).topic_id)

    def made_anew(self, topic: str, partitions: int = 2) -> None:
        super().made_anew(topic, partitions)
        self._sent = {key: sent for key, sent in self._sent.items() if key[0] != topic}

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        cells = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]

        def done() -> bool:  # the group's coordinator may hear of a new topic a moment later
            (future,) = self.admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, cells)]
            ).values()
            return all(cell.error is None for cell in future.result(WAIT_MAX_S).topic_partitions)

        await_true(done, f"group {group} takes offsets of {topic}")

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """What a plain consumer of the group finds."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        indexes = consumer.list_topics(topic, timeout=WAIT_MAX_S).topics[topic].partitions
        found = consumer.committed(
            [TopicPartition(topic, index) for index in indexes], timeout=WAIT_MAX_S
        )
        consumer.close()
        return {cell.partition: cell.offset for cell in found if cell.offset >= 0}


class Heard(list[Any]):
    """Events, each of which is told on its way."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell

    def append(self, event: Any) -> None:
        self._tell(event)
        super().append(event)


class Stream:
    """A query with a checkpoint and a folder of its own; what it read stands there as (topic,
    partition, offset).
    """

    def __init__(self, spark: SparkSession, kafka: LocalKafka, folder: Path) -> None:
        self.spark = spark
        self.broker = Broker(kafka)
        self.checkpoint = folder / "checkpoint"
        self.out = folder / "out"
        self.events: list[Any] = []

    def read(self, topics: Any, **arguments: Any) -> DataFrame:
        return self.broker.frame(self.spark, topics, **arguments)

    def start(self, frame: DataFrame, **trigger: Any) -> Query:
        columns = frame.select("topic", "partition", "offset")
        sink = exactum.FileSink(self.out, format="json")
        once = exactum.exactly_once(sink, on_event=self.events.append)
        writer = columns.writeStream.trigger(**trigger) if trigger else columns.writeStream
        started: Query = once.start(writer, checkpoint=self.checkpoint)
        return started

    def run(self, frame: DataFrame, **trigger: Any) -> str | None:
        """Run to the end; the text of the error, or None."""
        return self.end(lambda: self.start(frame, **(trigger or {"availableNow": True})))

    def end(self, query: Query | Callable[[], Query]) -> str | None:
        """Of a query, or of what starts one."""
        return text_of(ended(query if callable(query) else lambda: query))

    def told(self, kind: type[T]) -> list[T]:
        """The events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def rows(self) -> list[tuple[str, int, int]]:
        found = rows_in(self.out)
        return sorted((row["topic"], row["partition"], row["offset"]) for row in found)


def transactions(stream: Stream) -> list[int]:
    """Of each epoch; a task makes one where it has rows."""
    return [event.transactions for event in stream.told(events.EpochCompleted)]
