"""Reading a transaction's records and its control marker straight from the log, aborted ones included.

A record batch's header carries (producer id, producer epoch); a control batch ends the producer's
transaction in that partition. One producer has one transaction at a time, so the first control batch of the
producer behind a transaction's first offset is the one that ended it (Kafka's message format, v2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka.record import MemoryRecords

from exactum.errors import OutcomeUnknown
from exactum.kafka.outcome import Marker
from exactum.kafka.requests import BrokerRequests
from exactum.kafka.transaction import Partition


@dataclass(frozen=True)
class LoggedRecord:
    """One record as it stands in the log. ``timestamp_ms`` is its creation or append time."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def read_back(
    requests: BrokerRequests,
    partition: Partition,
    start_offset: int,
    producer: tuple[int, int],
    on_record: Callable[[LoggedRecord], None] | None = None,
) -> tuple[Marker, int]:
    """Walk the log from ``start_offset`` to the marker that ended the transaction of ``producer``.

    ``producer`` is (producer id, producer epoch). Returns the marker and how many of the transaction's
    records were met; ``on_record`` gets each of them, in order.

    Raises:
        OutcomeUnknown: the partition could not be read.
    """
    offset, count, truncated = start_offset, 0, False
    while True:
        answer = requests.fetch(partition, offset)
        if answer.error == "OffsetOutOfRangeError" and not truncated:
            offset, truncated = max(offset, requests.log_start_offset(partition)), True
            continue
        if answer.error:
            raise OutcomeUnknown(
                f"{partition[0]}-{partition[1]} could not be read from offset {offset}: {answer.error}. "
                "The user needs READ on the topic (docs/kafka.md lists the ACLs)."
            )
        next_offset = offset
        for batch in _batches(answer.records):
            next_offset = max(next_offset, batch.next_offset)
            if batch.producer_id != producer[0] or batch.next_offset <= offset:
                continue
            if batch.is_control_batch:
                for control in batch:
                    return (Marker.COMMIT if control.commit else Marker.ABORT), count
            elif batch.producer_epoch == producer[1]:
                for record in batch:
                    if record.offset >= start_offset:
                        count += 1
                        if on_record is not None:
                            on_record(_logged(record))
        if next_offset == offset:
            return (Marker.GONE if truncated else Marker.NONE), count
        offset = next_offset


def _batches(data: bytes) -> Any:
    records = MemoryRecords(data)
    while records.has_next():
        yield records.next_batch()


def _logged(record: Any) -> LoggedRecord:
    return LoggedRecord(
        key=None if record.key is None else bytes(record.key),
        value=None if record.value is None else bytes(record.value),
        headers=tuple((name, None if v is None else bytes(v)) for name, v in record.headers or ()),
        timestamp_ms=record.timestamp,
    )
