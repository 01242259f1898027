"""Topics of a test: filled, and read as a consumer with read_committed reads them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from exactum.errors import ExactumError
from exactum.kafka.requests import BrokerRequests
from exactum.testing.crash_verdict import OutputRecord, Text

if TYPE_CHECKING:
    from exactum.local import LocalKafka

PARTITIONS = 4
TIMEOUT_S = 60.0
POLL_S = 0.1
MESSAGES_MAX = 2_000

Given = tuple[Text, Text]
"""The key and the value of a record: text, bytes or None."""


class LocalTopics:
    """Makes topics on a cluster, fills them and reads them. Only ``produce`` is for one thread.

    Args:
        kafka: a running cluster.
    """

    def __init__(self, kafka: LocalKafka) -> None:
        self.bootstrap_servers = kafka.bootstrap_servers
        self._kafka = kafka
        self._requests = BrokerRequests(
            {"bootstrap.servers": self.bootstrap_servers}, "the test's topics"
        )
        self._known: dict[str, list[int]] = {}  # partitions of topics

    @cached_property
    def _producer(self) -> Producer:
        # One for all: an idempotent producer waits half a second before its first record.
        return Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 10_000_000,
                "log_level": 0,
            }
        )

    def create(
        self,
        name: str = "topic",
        records: Iterable[Given] = (),
        *,
        partitions: int = PARTITIONS,
        config: Mapping[str, str | int] | None = None,
    ) -> str:
        """Make a topic, fill it, and return its name.

        Args:
            name: how the topic's name begins. The rest is random, so tests can share a cluster.
            records: pairs of key and value: text, bytes or None.
            partitions: of the topic.
            config: settings of the topic.

        Raises:
            LocalServerError: the topic could not be made.
            ExactumError: a record was not taken.
        """
        unique = f"{name}_{secrets.token_hex(4)}"
        self._kafka.create_topic(unique, partitions=partitions, config=config)
        self.produce(unique, records)
        return unique

    def produce(self, topic: str, records: Iterable[Given]) -> None:
        """Append records, and return when the cluster has all of them.

        Partitions are chosen as Kafka's Java clients choose them.

        Args:
            topic: its name.
            records: pairs of key and value: text, bytes or None.

        Raises:
            ExactumError: a record was not taken.
        """
        refused: list[str] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.append(str(error))

        for key, value in records:
            self._producer.produce(topic, value, key, on_delivery=delivered)
            self._producer.poll(0)
        if self._producer.flush(TIMEOUT_S) or refused:
            raise ExactumError(
                f"the topic {topic} did not take all records: {refused[:1] or 'no answer'}"
            )

    def read(self, topic: str) -> list[OutputRecord]:
        """Everything that a reader with ``isolation.level=read_committed`` finds now.

        Records of a partition stand in their order. Headers and times are not read.

        Args:
            topic: its name.

        Raises:
            ExactumError: the end was not reached within a minute.
        """
        found: dict[int, list[OutputRecord]] = {part: [] for part in self._partitions(topic)}
        deadline = time.monotonic() + TIMEOUT_S
        with self._reader(topic, found) as consumer:
            ended: set[int] = set()
            while len(ended) < len(found):
                ended |= _consumed(consumer, found)
                if time.monotonic() > deadline:
                    raise ExactumError(
                        f"{topic} could not be read to its end in {TIMEOUT_S:.0f} s."
                    )
        return [record for part in sorted(found) for record in found[part]]

    @contextmanager
    def _reader(self, topic: str, partitions: Iterable[int]) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "exactum-reader",  # asked for, and unused: nothing is committed
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, part, 0) for part in partitions])
            yield consumer
        finally:
            consumer.close()

    def ends(self, topic: str) -> dict[int, int]:
        """The high watermark of each partition."""
        return self._ends(topic, read_committed=False)

    def hidden(self, topic: str) -> int:
        """How many offsets open transactions hide: high watermark minus last stable offset."""
        stable = self._ends(topic, read_committed=True)
        return max(0, sum(self.ends(topic).values()) - sum(stable.values()))

    def close(self) -> None:
        """Let go of the connections. Idempotent."""
        self._requests.close()

    def _ends(self, topic: str, *, read_committed: bool) -> dict[int, int]:
        asked = [(topic, part) for part in self._partitions(topic)]
        ends = self._requests.end_offsets(asked, read_committed=read_committed)
        return {part: end for (_, part), end in ends.items()}

    def _partitions(self, topic: str) -> list[int]:
        if topic not in self._known:
            found = self._requests.topics([topic], all_visible=True).get(topic)
            if found is None:
                raise ExactumError(f"there is no topic {topic} at {self.bootstrap_servers}.")
            self._known[topic] = list(range(found.partitions))
        return self._known[topic]


def _consumed(consumer: Consumer, found: Mapping[int, list[OutputRecord]]) -> set[int]:
    """Take what is there into ``found``; the partitions whose end was met."""
    ended: set[int] = set()
    for message in consumer.consume(MESSAGES_MAX, POLL_S):
        part, error = message.partition() or 0, message.error()
        if error is None:
            found[part].append(OutputRecord(_text(message.key()), _text(message.value())))
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(part)
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)
    return ended


def _text(raw: bytes | str | None) -> Text:
    if not isinstance(raw, bytes):
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
