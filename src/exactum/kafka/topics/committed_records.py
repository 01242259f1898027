"""What readers see of one partition of a topic, read again from one offset to another."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from exactum.errors import SettingRefused, Unavailable
from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.transaction import Partition

_client_log = logging.getLogger("exactum.kafka")

READ_TIMEOUT_S = 30.0
POLL_S = 0.1
MESSAGES_MAX = 10_000
"""Taken at once of those that have come already."""
END_WAIT_MS = 10
"""How long the broker keeps the answer that there is nothing more."""


class NotReadable(Exception):
    """The brokers refuse to give a range. The message is their reason, ``failure`` its kind."""

    def __init__(self, reason: str, failure: KafkaFailure) -> None:
        super().__init__(reason)
        self.failure = failure


class RangeGone(NotReadable):
    """Nothing is at its begin: retention took it, or the topic was made anew or deleted."""


class CommittedRecords:
    """Of one cluster: records of committed transactions, and of none. No offsets of a group are
    kept. One thread, one range at a time; closed by its owner.
    """

    def __init__(self, settings: Mapping[str, str], group: str, where: str) -> None:
        """``settings`` are librdkafka's, with ``bootstrap.servers``. ``group``: librdkafka demands
        one, and asks for its coordinator.

        Raises:
            SettingRefused: librdkafka does not take the settings.
        """
        own = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": END_WAIT_MS,
        }
        try:
            self._consumer = Consumer({**settings, **own}, logger=_client_log)
        except KafkaException as error:
            raise SettingRefused(
                "KAFKA_SETTING",
                f"{where}: librdkafka refuses its settings: {error.args[0].str()}",
            ) from error

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
        try:
            yield from self._read(partition, since, until)
        finally:
            self._consumer.unassign()  # it would ask for more, a hundred times a second

    def _read(self, partition: Partition, since: int, until: int | None) -> Iterator[Message]:
        position = since
        while until is None or position < until:
            for message in self._some(partition, position):
                error = message.error()
                if error is None:
                    position = message.offset() + 1
                    if until is None or position <= until:
                        yield message
                    continue
                failure = failure_of(error.code())
                if failure is KafkaFailure.END:
                    if until is None:
                        return
                    position = max(position, message.offset())
                elif failure in (KafkaFailure.OUTSIDE, KafkaFailure.MISSING):
                    raise RangeGone(error.str(), failure)
                elif failure is not KafkaFailure.GROUP_DENIED and not error.retriable():
                    # nothing is asked of the group
                    raise NotReadable(error.str(), failure)

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
