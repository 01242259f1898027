"""What the leaders of partitions tell of their logs: producers, offsets and raw batches."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exactum.kafka.client import (
    DescribeProducersRequest,
    FetchRequest,
    ListOffsetsRequest,
    MemoryRecords,
    MetadataRequest,
)
from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.routing import Router, by_topic
from exactum.kafka.transaction import Partition

LATEST, EARLIEST = -1, -2  # ListOffsets' special timestamps
FETCH_VERSION_MAX = 12  # version 13 names topics by id
ANY_BATCH_BYTES = 1
"""A broker returns the first batch whole, however large, and nothing more."""
MAGIC = 2
"""The format of batches that have producers."""
BY_THE_PRODUCER = 0
"""Who set the time of a batch's records, by Kafka's number."""


@dataclass(frozen=True)
class ProducerState:
    """What a partition's leader knows of one producer. ``transaction_start_offset``: -1 where it
    has none open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    transaction_start_offset: int


@dataclass(frozen=True)
class LogIdentity:
    """By which a log is known to be the one that it was: the topic's id changes where it is made
    anew (zeros before Kafka 2.8), the leader's epoch with each election and each of its starts.
    """

    topic_id: str
    leader_epoch: int


class LogRequests:
    """Requests to the leader of each partition."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def end_offsets(
        self, partitions: Iterable[Partition], *, read_committed: bool
    ) -> dict[Partition, int]:
        """The last stable offset (``read_committed``) or the high watermark of each partition."""
        return self.list_offsets(partitions, LATEST, read_committed=read_committed)

    def log_bounds(self, partition: Partition) -> tuple[int, int]:
        """The first offset that retention and deletion have left, and the high watermark."""
        first = self.list_offsets([partition], EARLIEST, read_committed=False)[partition]
        return first, self.end_offsets([partition], read_committed=False)[partition]

    def list_offsets(
        self, partitions: Iterable[Partition], timestamp: int, *, read_committed: bool
    ) -> dict[Partition, int]:
        """``EARLIEST``, ``LATEST``, or the first record at or after a time in ms, -1 for none."""

        def request(asked: Sequence[Partition]) -> Any:
            topic = ListOffsetsRequest.ListOffsetsTopic
            cell = topic.ListOffsetsPartition
            return ListOffsetsRequest(
                replica_id=-1,
                isolation_level=1 if read_committed else 0,
                topics=[
                    topic(
                        name=t,
                        partitions=[cell(partition_index=i, timestamp=timestamp) for i in indexes],
                    )
                    for t, indexes in by_topic(asked).items()
                ],
                min_version=2,
            )

        result: dict[Partition, int] = {}
        answers = self._router.by_leader(partitions, request, again=[KafkaFailure.MISSING])
        for partition, (error, p) in answers.items():
            if error:
                raise self._router.denied("DESCRIBE on the topic", partition[0], error)
            result[partition] = int(p.offset)
        return result

    def fetch(
        self,
        partition: Partition,
        offset: int,
        *,
        bytes_max: int = 8 * 1024 * 1024,
        read_committed: bool = False,
    ) -> Any:
        """Kafka's answer of one partition: ``records`` are raw batches from ``offset`` on, or None,
        aborted and open transactions included; with ``read_committed`` no open ones, and
        ``aborted_transactions`` are told. ``log_start_offset``, ``high_watermark`` and
        ``error_code`` go with them.

        Raises:
            SettingRefused: READ on the topic is not granted.
        """

        def request(_: Sequence[Partition]) -> Any:
            topic = FetchRequest.FetchTopic
            cell = topic.FetchPartition(
                partition=partition[1],
                current_leader_epoch=-1,
                fetch_offset=offset,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=bytes_max,
            )
            return FetchRequest(
                replica_id=-1,
                max_wait_ms=50,
                min_bytes=1,
                max_bytes=bytes_max,
                isolation_level=1 if read_committed else 0,
                session_id=0,
                session_epoch=-1,
                topics=[topic(topic=partition[0], partitions=[cell])],
                forgotten_topics_data=[],
                rack_id="",
                min_version=5,
                max_version=FETCH_VERSION_MAX,
            )

        def read(answer: Any) -> Iterable[tuple[Partition, int, Any]]:
            for topic in answer.responses:
                for p in topic.partitions:
                    yield (topic.topic, p.partition_index), p.error_code, p

        error, p = self._router.by_leader([partition], request, read)[partition]
        if failure_of(error) is KafkaFailure.DENIED:
            raise self._router.denied("READ on the topic", partition[0], error)
        return p

    def record_times(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """The time in ms since 1970 of the first record at or after each offset, by its batch's
        header; left out where the log has none, or does not say.

        Raises:
            SettingRefused: READ on a topic is not granted.
        """
        found: dict[Partition, int] = {}
        for partition, offset in offsets.items():
            if (at_ms := batch_time_ms(self.first_batch(partition, offset))) is not None:
                found[partition] = at_ms
        return found

    def first_batch(self, partition: Partition, offset: int) -> Any:
        """The first batch at or after an offset, as kafka-python reads it, whose header holds
        without its records; None where there is none yet.

        Raises:
            SettingRefused: READ on the topic is not granted.
        """
        answer = self.fetch(partition, offset, bytes_max=ANY_BATCH_BYTES)
        return MemoryRecords(bytes(answer.records or b"")).next_batch()

    def describe_producers(
        self,
        partitions: Iterable[Partition],
        of: Container[int] | None = None,
    ) -> dict[Partition, dict[int, ProducerState]]:
        """The producers that each partition's leader knows, by producer id; ``of``: these alone.

        A leader tells of all that have written there within a day
        (``producer.id.expiration.ms``), those of runs that are long over as well.

        Raises:
            SettingRefused: READ on the topic is not granted.
        """

        def request(asked: Sequence[Partition]) -> Any:
            topic = DescribeProducersRequest.TopicRequest
            return DescribeProducersRequest(
                topics=[topic(name=t, partition_indexes=i) for t, i in by_topic(asked).items()]
            )

        found: dict[Partition, dict[int, ProducerState]] = {}
        answers = self._router.by_leader(partitions, request, again=[KafkaFailure.MISSING])
        for partition, (error, p) in answers.items():
            if error:
                raise self._router.denied("READ on the topic", partition[0], error)
            found[partition] = {
                a.producer_id: ProducerState(
                    a.producer_id, a.producer_epoch, a.last_sequence, a.current_txn_start_offset
                )
                for a in p.active_producers
                if of is None or a.producer_id in of
            }
        return found

    def identities(self, partitions: Iterable[Partition]) -> dict[Partition, LogIdentity]:
        """Of each partition's log, as its leader says, who hears of an election before it takes
        records by it.
        """
        wanted = set(partitions)

        def request(asked: Sequence[Partition]) -> Any:
            topic = MetadataRequest.MetadataRequestTopic
            return MetadataRequest(
                topics=[topic(name=name) for name in by_topic(asked)],
                allow_auto_topic_creation=False,
            )

        def read(answer: Any) -> Iterable[tuple[Partition, int, Any]]:
            for topic in answer.topics:
                for p in topic.partitions:
                    if (partition := (topic.name, p.partition_index)) in wanted:
                        identity = LogIdentity(str(topic.topic_id), p.leader_epoch)
                        yield partition, p.error_code, identity

        # An answer tells of all of a topic's partitions.
        answers = self._router.by_leader(wanted, request, read, each_max=len(wanted) or 1)
        return {partition: identity for partition, (_, identity) in answers.items()}


def batch_time_ms(first: Any) -> int | None:
    """The time that a batch's header says: of its first record where the producer set it, else when
    the broker took it. None: it says none, or there is no batch.
    """
    if first is None or first.magic != MAGIC:
        return None
    is_first = first.timestamp_type == BY_THE_PRODUCER
    at_ms = first.first_timestamp if is_first else first.max_timestamp
    return int(at_ms) if at_ms >= 0 else None
