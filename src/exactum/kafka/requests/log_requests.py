"""What the leaders of partitions tell of their logs: producers, offsets and raw batches."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.requests.client_internals import (
    DescribeProducersRequest,
    FetchRequest,
    ListOffsetsRequest,
)
from exactum.kafka.requests.routing import Router, by_topic
from exactum.kafka.transaction import Partition

LATEST, EARLIEST = -1, -2  # ListOffsets' special timestamps

FETCH_VERSION_MAX = 12  # version 13 names topics by id


@dataclass(frozen=True)
class ProducerState:
    """What a partition leader knows of one producer: its last sequence and its open transaction."""

    producer_epoch: int
    last_sequence: int
    transaction_start_offset: int


@dataclass(frozen=True)
class FetchedRecords:
    """Raw record batches of one partition, with the bounds of the log at that moment, and the
    error's code or 0.
    """

    records: bytes
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    error: int


class LogRequests:
    """Requests to the leader of each partition."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def describe_producers(
        self, partitions: Iterable[Partition], of: Container[int] | None = None
    ) -> dict[Partition, dict[int, ProducerState]]:
        """The producers that each partition's leader knows, by producer id; ``of``: these alone.

        A leader tells of all that have written there within a day
        (``producer.id.expiration.ms``), those of runs that are long over as well.

        Raises:
            SettingRefused: READ on the topic is not granted.
        """

        result: dict[Partition, dict[int, ProducerState]] = {}
        for partition, (error, p) in self._active_producers(partitions).items():
            if error:
                raise self._router.denied("READ on the topic", partition[0], error)
            result[partition] = {
                a.producer_id: ProducerState(
                    a.producer_epoch, a.last_sequence, a.current_txn_start_offset
                )
                for a in p.active_producers
                if of is None or a.producer_id in of
            }
        return result

    def _active_producers(
        self, partitions: Iterable[Partition]
    ) -> dict[Partition, tuple[int, Any]]:
        """(error's code or 0, the leader's answer) of each partition."""

        def request(asked: Sequence[Partition]) -> Any:
            topic = DescribeProducersRequest.TopicRequest
            return DescribeProducersRequest(
                topics=[topic(name=t, partition_indexes=i) for t, i in by_topic(asked).items()]
            )

        return self._router.by_leader(partitions, request)

    def end_offsets(
        self, partitions: Iterable[Partition], *, read_committed: bool
    ) -> dict[Partition, int]:
        """The last stable offset (``read_committed``) or the high watermark of each partition."""
        return self._list_offsets(partitions, LATEST, 1 if read_committed else 0)

    def log_bounds(self, partition: Partition) -> tuple[int, int]:
        """The first offset that retention and deletion have left, and the high watermark."""
        first = self._list_offsets([partition], EARLIEST, 0)[partition]
        return first, self._list_offsets([partition], LATEST, 0)[partition]

    def _list_offsets(
        self, partitions: Iterable[Partition], timestamp: int, isolation_level: int
    ) -> dict[Partition, int]:

        def request(asked: Sequence[Partition]) -> Any:
            topic = ListOffsetsRequest.ListOffsetsTopic
            cell = topic.ListOffsetsPartition
            return ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level,
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
        for partition, (error, p) in self._router.by_leader(partitions, request).items():
            if error:
                raise self._router.denied("DESCRIBE on the topic", partition[0], error)
            result[partition] = int(p.offset)
        return result

    def fetch(
        self, partition: Partition, offset: int, *, bytes_max: int = 8 * 1024 * 1024
    ) -> FetchedRecords:
        """Raw batches from ``offset`` on, aborted and open transactions included (isolation level
        0).

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
                isolation_level=0,
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
        records = p.records
        return FetchedRecords(
            records=bytes(records) if records is not None else b"",
            log_start_offset=p.log_start_offset,
            high_watermark=p.high_watermark,
            last_stable_offset=p.last_stable_offset,
            error=error,
        )
