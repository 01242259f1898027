"""The value that names one Kafka transaction: what any process needs to end it, as JSON in a
record's payload.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exactum.protocol.model import PreparedTransaction, Sighting

# Tasks import this module: it must not bring kafka-python, which only the driver needs, into their
# workers.
Partition = tuple[str, int]
"""(topic, index)."""


@dataclass(frozen=True)
class KafkaTransaction:
    """``partitions`` and ``cluster_id`` come from verify: (first offset, records) by partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    cluster_id: str = ""
    partitions: tuple[tuple[Partition, tuple[int, int]], ...] = ()

    @property
    def producer(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    @property
    def identity(self) -> str:
        """Names this transaction and no other, ever: each has a producer epoch of its own."""
        return f"{self.transactional_id}@{self.producer_id}:{self.producer_epoch}"

    def payload(self) -> str:
        """JSON text of what ends it."""
        return json.dumps(
            {
                "transactional_id": self.transactional_id,
                "producer_id": self.producer_id,
                "producer_epoch": self.producer_epoch,
            }
        )

    def prepared(self, participant: str, rows: int) -> PreparedTransaction:
        return PreparedTransaction(participant, self.identity, rows, self.payload())

    @staticmethod
    def of(value: PreparedTransaction | Sighting) -> KafkaTransaction:
        fields: Mapping[str, Any] = json.loads(value.payload)
        return KafkaTransaction(
            fields["transactional_id"],
            fields["producer_id"],
            fields["producer_epoch"],
            fields.get("cluster_id", ""),
            tuple(
                ((topic, int(index)), (first, count))
                for topic, cells in fields.get("partitions", {}).items()
                for index, (first, count) in cells.items()
            ),
        )
