"""Reads a partition's log by the headers of its record batches, and counts by producer.

Of a batch only the header is read (Kafka's message format v2, ``DefaultRecordBatch.java``), so
nothing is decompressed. A control batch ends its producer's transaction; its one record is never
compressed (``ControlRecordType.java``: key = version int16, type int16; 0 abort, 1 commit).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from exactum.errors import OutcomeUnknown

HEADER = struct.Struct(">qiibIhiqqqhii")
"""base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and max
timestamp, producer id, producer epoch, base sequence, records."""
LOG_OVERHEAD = 12
MAGIC = 2
TRANSACTIONAL, CONTROL = 0x10, 0x20
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
    """A log from ``first_offset`` to ``end_offset``, which is not read any more.

    ``start_offset`` is where the log begins now. ``others`` counts records outside of
    transactions.
    """

    first_offset: int
    end_offset: int
    start_offset: int = 0
    by_producer: dict[Producer, Counted] = field(default_factory=dict)
    others: int = 0

    def add(self, batch: BatchHeader) -> None:
        if batch.is_commit is not None:
            self._ended(batch)
        elif batch.is_transactional:
            self.by_producer.setdefault(batch.producer, Counted()).records += batch.records
        else:
            self.others += batch.records

    def _ended(self, batch: BatchHeader) -> None:
        """The producer epoch of a marker may be higher than that of its records: a coordinator that
        fences raises it with the abort.
        """
        producer_id, epoch = batch.producer
        exact = self.by_producer.get(batch.producer)
        of_it = [
            counted
            for (its_id, its_epoch), counted in self.by_producer.items()
            if its_id == producer_id and its_epoch <= epoch and counted.is_commit is None
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
    found = LogCount(first_offset, end_offset)
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
    place = 0
    while place + HEADER.size <= len(data):
        base, length, _, magic, _, attributes, delta, _, _, pid, epoch, _, records = (
            HEADER.unpack_from(data, place)
        )
        if magic != MAGIC or length < HEADER.size - LOG_OVERHEAD:
            raise OutcomeUnknown(
                f"At offset {base} the log holds a batch of format {magic}, which has no "
                "transactions. Only logs of Kafka 0.11 and later can be verified."
            )
        end = place + LOG_OVERHEAD + length
        if end > len(data):
            return
        is_commit = _is_commit(data[place + HEADER.size : end]) if attributes & CONTROL else None
        yield BatchHeader(
            base,
            base + delta,
            (pid, epoch),
            0 if attributes & CONTROL else records,
            bool(attributes & TRANSACTIONAL),
            is_commit,
        )
        place = end


def _is_commit(record: bytes) -> bool | None:
    """Of the one record of a control batch: length, attributes, timestamp delta, offset delta, key
    length (varints but for the attributes), then the key.
    """
    _, place = _varint(record, 0)
    place += 1
    for _ in range(2):
        _, place = _varint(record, place)
    _, place = _varint(record, place)
    kind = struct.unpack_from(">h", record, place + 2)[0]
    return bool(kind == 1) if kind in (0, 1) else None


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), place
