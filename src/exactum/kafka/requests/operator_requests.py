"""Requests of operators' commands about transactions, foreign ones among them (KIP-664)."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from exactum.errors import SettingRefused
from exactum.kafka.failure import DENIALS, failure_of
from exactum.kafka.requests.broker_requests import BrokerRequests
from exactum.kafka.requests.client_internals import (
    MetadataRequest,
    WriteTxnMarkersRequest,
)
from exactum.kafka.requests.routing import error_name
from exactum.kafka.transaction import Partition

ENDING_STATES = ("PrepareCommit", "PrepareAbort")
"""Decided by the coordinator, and its markers are not in every partition yet."""
TRANSACTION_LOG = "__transaction_state"
MARKER_VERSION_MAX = 1
"""Version 2 carries a transaction version, by which a broker refuses a marker that does not raise
the producer's epoch."""


@dataclass(frozen=True)
class OpenProducer:
    """A producer with an open transaction in one partition, as its leader knows it.
    ``last_write_ms``: the timestamp of its last batch.
    """

    partition: Partition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_write_ms: int


class OperatorRequests(BrokerRequests):
    """Connections for operators' commands."""

    def list_unsettled(self, pattern: str | None = None) -> list[str]:
        """Transactional ids that are open, or whose markers are not all written, on any node;
        filtered by ``pattern`` where the broker can.
        """
        states = ("Ongoing", *ENDING_STATES)
        return [t.transactional_id for t in self._transactions(states, pattern)]

    def may_describe_any_id(self) -> bool:
        """Whether DESCRIBE is granted on transactional ids of any name: a broker leaves the others
        out of its lists without a word.
        """
        try:
            self.describe_transactions([f"exactum-looks-{secrets.token_hex(8)}"])
        except SettingRefused:
            return False
        return True

    def all_partitions(self) -> tuple[dict[Partition, int], set[Partition]]:
        """(leader by partition, partitions without a leader) of every topic that the user may see,
        those of Kafka's own among them.
        """

        async def ask() -> tuple[dict[Partition, int], set[Partition]]:
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            led: dict[Partition, int] = {}
            leaderless: set[Partition] = set()
            for topic in (await self._router.send(request, None)).topics:
                for p in topic.partitions:
                    partition = (topic.name, p.partition_index)
                    if p.leader_id >= 0:
                        led[partition] = p.leader_id
                    else:
                        leaderless.add(partition)
            return led, leaderless

        return self._router.retry(ask)

    def open_producers(
        self, partitions: Iterable[Partition]
    ) -> tuple[list[OpenProducer], dict[Partition, str]]:
        """The producers with an open transaction, and the partitions that the user may not ask
        about, with what the broker answered.
        """

        found: list[OpenProducer] = []
        denied: dict[Partition, str] = {}
        for partition, (error, p) in self._active_producers(partitions).items():
            if error:
                denied[partition] = error_name(error)
                continue
            found += [
                OpenProducer(
                    partition,
                    a.producer_id,
                    a.producer_epoch,
                    a.coordinator_epoch,
                    a.current_txn_start_offset,
                    a.last_timestamp,
                )
                for a in p.active_producers
                if a.current_txn_start_offset >= 0
            ]
        return found, denied

    def write_abort_marker(self, producer: OpenProducer) -> None:
        """End the producer's transaction in this one partition, past its coordinator. Idempotent.

        Raises:
            SettingRefused: the user may not; it needs CLUSTER_ACTION, or ALTER, on the cluster.
            Unavailable: no answer.
            MarkerRefused: the broker refuses this marker.
        """
        topic, index = producer.partition

        def request(_: Sequence[Partition]) -> Any:
            marker = WriteTxnMarkersRequest.WritableTxnMarker
            return WriteTxnMarkersRequest(
                markers=[
                    marker(
                        producer_id=producer.producer_id,
                        producer_epoch=producer.producer_epoch,
                        transaction_result=False,
                        topics=[
                            marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])
                        ],
                        # A producer that never ended a transaction has none; 0 is below every
                        # coordinator's, and is taken (as Kafka's own tool does).
                        coordinator_epoch=max(0, producer.coordinator_epoch),
                    )
                ],
                max_version=MARKER_VERSION_MAX,
            )

        def read(answer: Any) -> Iterable[tuple[Partition, int, Any]]:
            for marker in answer.markers:
                for t in marker.topics:
                    for p in t.partitions:
                        yield (t.name, p.partition_index), p.error_code, None

        error, _ = self._router.by_leader([producer.partition], request, read)[producer.partition]
        if failure_of(error) in DENIALS:
            raise self._router.denied("CLUSTER_ACTION or ALTER on the cluster", topic, error)
        if error:
            raise MarkerRefused(
                f"The leader of {topic}-{index} refuses the abort marker of producer "
                f"{producer.producer_id}, epoch {producer.producer_epoch}: {error_name(error)}."
            )


class MarkerRefused(Exception):
    """A partition's leader refuses an abort marker; its message says why."""
