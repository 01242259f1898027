"""Reads a partition's log by the headers of its record batches, and counts by producer.

By kafka-python, which did not write it. Of a batch only the header is read, so nothing is
decompressed. A control batch ends its producer's transaction; its one record is never compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from exactum.errors import OutcomeUnknown
from exactum.kafka.requests.client_internals import MemoryRecords

MAGIC = 2
Producer = tuple[int, int]
"""(producer id, producer epoch)."""


@dataclass(frozen=True)
class BatchHeader:
    """``is_commit`` is of a control batch that ends a transaction, else None."""

    base_offset: int
    last_offset: int
    producer: Producer
    records: int
    is_transactional: bool
    is_commit: bool | None


@dataclass
class Counted:
    """What the log holds of one transaction: its records, and the marker that ended it."""

    records: int = 0
    is_commit: bool | None = None


@dataclass
class LogCount:
    """``start_offset`` is where the log begins now."""

    start_offset: int = 0
    by_producer: dict[Producer, Counted] = field(default_factory=dict)

    def add(self, batch: BatchHeader) -> None:
        if batch.is_commit is not None:
            self._ended(batch)
        elif batch.is_transactional:
            self.by_producer.setdefault(batch.producer, Counted()).records += batch.records

    def _ended(self, batch: BatchHeader) -> None:
        """The producer epoch of a marker may be higher than that of its records: a coordinator that
        fences raises it with the abort.
        """
        producer_id, epoch = batch.producer
        exact = self.by_producer.get(batch.producer)
        of_it = [
            counted
            for (own_id, own_epoch), counted in self.by_producer.items()
            if own_id == producer_id and own_epoch <= epoch and counted.is_commit is None
        ]
        for counted in [exact] if exact is not None and exact.is_commit is None else of_it:
            counted.is_commit = batch.is_commit


Fetch = Callable[[int], tuple[bytes, int]]
"""From an offset to raw batches from there on, and where the log begins."""


def count(fetch: Fetch, first_offset: int, end_offset: int) -> LogCount:
    """Walk a log once.

    Raises:
        OutcomeUnknown: it holds what is no record batch of this format.
    """
    found = LogCount()
    offset = first_offset
    while offset < end_offset:
        data, found.start_offset = fetch(offset)
        if found.start_offset > offset:
            offset = found.start_offset
            continue
        following = offset
        for batch in headers(data):
            following = max(following, batch.last_offset + 1)
            if batch.last_offset >= offset and batch.base_offset < end_offset:
                found.add(batch)
        if following == offset:  # the log ends before it should
            break
        offset = following
    return found


def headers(data: bytes) -> Iterator[BatchHeader]:
    """The batches that are there in full; a fetch may end in the midst of one.

    Raises:
        OutcomeUnknown: a batch is of another format.
    """
    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        if batch.magic != MAGIC:
            raise OutcomeUnknown(
                f"At offset {batch.base_offset} the log holds a batch of format {batch.magic}, "
                "which has no transactions. Only logs of Kafka 0.11 and later can be verified."
            )
        is_control = batch.is_control_batch
        yield BatchHeader(
            batch.base_offset,
            batch.last_offset,
            (batch.producer_id, batch.producer_epoch),
            0 if is_control else batch.records_count,
            batch.is_transactional,
            _is_commit(next(batch)) if is_control else None,
        )


def _is_commit(marker: Any) -> bool | None:
    """None for a control record that ends no transaction."""
    return bool(marker.commit) if marker.commit or marker.abort else None
