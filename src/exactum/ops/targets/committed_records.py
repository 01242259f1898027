"""What readers see of one partition of a topic, read again from one offset to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from exactum.errors import Unavailable
from exactum.kafka.transaction import Partition

READ_TIMEOUT_S = 30.0
POLL_S = 0.1
MESSAGES_MAX = 10_000
"""Taken at once of those that have come already."""
END_WAIT_MS = 10
"""How long the broker keeps the answer that there is nothing more."""
_GONE = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)


class NotReadable(Exception):
    """The brokers refuse to give a range. The message is their reason."""


class RangeGone(NotReadable):
    """Nothing is at its begin: retention took it, or the topic was made anew or deleted."""


class CommittedRecords:
    """Of one cluster: records of committed transactions, and of none. No offsets of a group are
    kept. One thread, one range at a time; closed by its owner.
    """

    def __init__(self, settings: Mapping[str, str], group: str) -> None:
        """``settings`` are librdkafka's, with ``bootstrap.servers``."""
        own = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": END_WAIT_MS,
        }
        self._consumer = Consumer({**settings, **own})

    def close(self) -> None:
        self._consumer.close()

    def partitions(self, topic: str) -> list[Partition]:
        """
        Raises:
            Unavailable: the brokers did not answer for 30 s, or do not name them.
        """
        try:
            found = self._consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic]
        except KafkaException as error:
            raise Unavailable(f"The topic {topic!r}: {error.args[0].str()}.") from error
        if found.error is not None:
            raise Unavailable(f"The topic {topic!r}: {found.error.str()}.")
        return [(topic, index) for index in sorted(found.partitions)]

    def read(
        self, partition: Partition, since: int = OFFSET_BEGINNING, until: int | None = None
    ) -> Iterator[Message]:
        """Those from ``since`` to before ``until``, which is waited for; None: to the end that the
        partition has.

        Raises:
            NotReadable: also in the midst of it.
            Unavailable: nothing came for 30 s.
        """
        topic, index = partition
        self._consumer.assign([TopicPartition(topic, index, since)])
        position = since
        while until is None or position < until:
            for message in self._some(partition, position):
                error = message.error()
                if error is None:
                    position = message.offset() + 1
                    if until is None or position <= until:
                        yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    if until is None:
                        return
                    position = max(position, message.offset())
                else:
                    kind = RangeGone if error.code() in _GONE else NotReadable
                    raise kind(error.str())

    def _some(self, partition: Partition, position: int) -> list[Message]:
        """The next one, and what came with it."""
        waited_s = 0.0
        while (first := self._consumer.poll(POLL_S)) is None:
            waited_s += POLL_S
            if waited_s >= READ_TIMEOUT_S:
                where = "its begin" if position == OFFSET_BEGINNING else f"offset {position}"
                raise Unavailable(
                    f"{partition[0]}-{partition[1]} gave nothing from {where} for {waited_s:.0f} s."
                )
        return [first, *self._consumer.consume(MESSAGES_MAX, 0)]
