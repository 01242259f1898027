"""A consumer of one topic that stays between the ranges that it is asked for, and reads ahead
(docs/adr/0026).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exactum.errors import (
    CheckpointRefused,
    ExactumError,
    InvariantBroken,
    SettingRefused,
    Unavailable,
)
from exactum.kafka.consumer.consumed import Consumed
from exactum.kafka.consumer.partition_feed import PartitionFeed
from exactum.kafka.consumer.range_reader import PartitionFailed, RangeReader
from exactum.kafka.failure import RETRIABLE, KafkaFailure, certificate_refused, failure_of
from exactum.kafka.native import librdkafka
from exactum.kafka.settings.client_settings import new_consumer

RECORDS_MAX = 10_000
BYTES_MAX = 2 << 20
"""In one Arrow batch, about."""
FIRST_COUNT = 200
"""Records that are asked for while nothing is known of their size."""
LOST = (
    "Records were deleted before they were read, by retention or by an operator, or the topic was "
    "made anew. Start a new query with a checkpoint location of its own; there start= says where "
    "it begins. Or go on without them: with failOnDataLoss=False. Nothing of this batch was "
    "written."
)


@dataclass(frozen=True)
class Range:
    """Offsets ``first`` to ``until - 1`` of a partition."""

    partition: int
    first: int
    until: int


@dataclass(frozen=True)
class RangeRead:
    """What came of a range: how many records, and the first offset that none came for, if any."""

    partition: int
    records: int
    first_missing: int | None


Shape = Callable[[int, Consumed], Any]
"""From a partition and its records to an Arrow record batch that refers to nothing of theirs."""


class TopicConsumer:
    """Used from one thread at a time. ``close`` lets go of the connections."""

    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        """Connects with the first range.

        Raises:
            SettingRefused: librdkafka does not take a setting.
        """
        self._topic = topic
        self._where = f"The topic {topic!r} at {settings.get('bootstrap.servers', '')}"
        self._c = librdkafka.library()
        self._client = new_consumer(settings, self._where, librdkafka.EVENT_ERROR)
        self._events = self._c.rd_kafka_queue_get_main(self._client)
        self._error: tuple[int, str] | None = None  # librdkafka's newest since records came
        self._handle = int(self._c.rd_kafka_topic_new(self._client, topic.encode(), None))
        self._feeds: dict[int, PartitionFeed] = {}
        self._readers: dict[int, RangeReader[Consumed]] = {}
        self._count_max = FIRST_COUNT
        self.used_s = time.monotonic()

    def read(
        self, ranges: Sequence[Range], shape: Shape, timeout_s: float, reads: list[RangeRead]
    ) -> Iterator[Any]:
        """Arrow batches of the ranges, of their partitions in turn; ranges of one partition are
        read in their order. What came of them is in ``reads`` afterwards, also of those that are
        read half way when this generator is closed.

        Raises:
            CheckpointRefused: records are not there any more, or not yet.
            Unavailable: nothing came for ``timeout_s``, or the broker refuses.
            SettingRefused: this user may not read the topic.
        """
        queues: dict[int, list[Range]] = {}
        for one in sorted(ranges, key=lambda each: each.first):
            queues.setdefault(one.partition, []).append(one)
        reading = {p: self._begun(queue.pop(0)) for p, queue in queues.items()}
        try:
            yield from self._turns(reading, queues, shape, timeout_s, reads)
        finally:
            reads += [_told(partition, reader) for partition, reader in reading.items()]

    def _turns(
        self,
        reading: dict[int, RangeReader[Consumed]],
        queues: Mapping[int, list[Range]],
        shape: Shape,
        timeout_s: float,
        reads: list[RangeRead],
    ) -> Iterator[Any]:
        """A range that is read goes from ``reading`` to ``reads``."""
        waited_s = 0.0
        while reading:
            self.used_s = time.monotonic()
            for partition, reader in list(reading.items()):
                began_s = time.monotonic()
                at = reader.at
                records = self._step(partition, reader)
                if records is not None:
                    yield self._batch(partition, records, shape)
                waited_s += time.monotonic() - began_s
                if reader.at != at:
                    waited_s = 0.0
                    self._error = None
                if reader.done:
                    reads.append(_told(partition, reader))
                    del reading[partition]
                    if queues[partition]:
                        reading[partition] = self._begun(queues[partition].pop(0))
            self._listen()
            if waited_s > timeout_s:
                raise self._stalled(reading, timeout_s)

    def close(self) -> None:
        """Give back what is kept, and let go of the connections."""
        for reader in self._readers.values():
            reader.forget()
        for feed in self._feeds.values():
            feed.stop()
        self._c.rd_kafka_topic_destroy(self._handle)
        self._c.rd_kafka_queue_destroy(self._events)
        self._c.rd_kafka_destroy(self._client)

    def _begun(self, one: Range) -> RangeReader[Consumed]:
        if one.partition not in self._readers:
            where = f"{self._where}, partition {one.partition},"
            feed = self._feeds[one.partition] = PartitionFeed(self._handle, one.partition, where)
            self._readers[one.partition] = RangeReader(feed)
        reader = self._readers[one.partition]
        reader.begin(one.first, one.until)
        return reader

    def _step(self, partition: int, reader: RangeReader[Consumed]) -> Consumed | None:
        try:
            return reader.step(self._count_max, lambda code: failure_of(code) in RETRIABLE)
        except PartitionFailed as error:
            raise self._failed(partition, error) from None
        except InvariantBroken as error:
            raise InvariantBroken(f"{self._where}, partition {partition}: {error}") from None

    def _batch(self, partition: int, records: Consumed, shape: Shape) -> Any:
        try:
            batch = shape(partition, records)
        finally:
            records.free()
        each = batch.nbytes // batch.num_rows + 1
        self._count_max = max(1, min(RECORDS_MAX, BYTES_MAX // each))
        return batch

    def _failed(self, partition: int, error: PartitionFailed) -> ExactumError:
        failure = failure_of(error.code)
        name = self._c.rd_kafka_err2str(error.code).decode(errors="replace")
        where = f"{self._where} cannot be read from offset {error.offset} of partition {partition}"
        if failure in (KafkaFailure.OUTSIDE, KafkaFailure.MISSING, KafkaFailure.UNFOUND):
            return CheckpointRefused(f"{where}: {name}. {LOST}")
        if failure is KafkaFailure.TOPIC_DENIED:
            return SettingRefused(
                f"{where}: the user needs READ on the topic (docs/source.md lists the ACLs)."
            )
        return Unavailable(f"{where}: {name}.")

    def _listen(self) -> None:
        """Take what librdkafka tells of its connections."""
        while event := self._c.rd_kafka_queue_poll(self._events, 0):
            code = int(self._c.rd_kafka_event_error(event))
            if code != librdkafka.ERR_ALL_BROKERS_DOWN:  # which follows the reason
                text = self._c.rd_kafka_event_error_string(event).decode(errors="replace")
                self._error = code, text
            self._c.rd_kafka_event_destroy(event)

    def _stalled(
        self, reading: Mapping[int, RangeReader[Consumed]], timeout_s: float
    ) -> ExactumError:
        left = ", ".join(
            f"{partition} (at offset {reader.at}, which is to be read to {reader.until})"
            for partition, reader in sorted(reading.items())
        )
        what = f"{self._where}: nothing came for {timeout_s:g} s of partition {left}"
        code, told = self._error or (0, "")
        failure = failure_of(code)
        if failure in (KafkaFailure.LOGIN, KafkaFailure.MECHANISM) or (
            failure is KafkaFailure.TLS and certificate_refused(told)
        ):
            return SettingRefused(
                f"{what}. The brokers refuse the login: {told}. Look at the security settings, and "
                "at whether the password or the certificate still holds."
            )
        also = f" ({told})" if told else ""
        return Unavailable(
            f"{what}{also}. Are the brokers up, and does the log still reach so far? "
            "kafkaConsumer.pollTimeoutMs is how long it is waited."
        )


def _told(partition: int, reader: RangeReader[Consumed]) -> RangeRead:
    return RangeRead(partition, reader.records, reader.first_missing)
