"""Compares what an epoch read from Kafka with what it wrote, for queries that copy: as many
records, with the same keys.

The input is read again by librdkafka's consumer, the output by Kafka's own batches; keys are
compared by sums that do not depend on their order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from exactum.errors import OutcomeUnknown
from exactum.kafka.requests.broker_requests import BrokerRequests
from exactum.kafka.requests.client_internals import MemoryRecords
from exactum.kafka.transaction import Partition
from exactum.ops.targets.committed_records import CommittedRecords, NotReadable
from exactum.ops.verify.evidence import Evidence, Finding, compared
from exactum.ops.verify.kafka_evidence import FETCH_BYTES_MAX, Promised, promised
from exactum.ops.verify.promise import Promise
from exactum.protocol.sink import DEAD_LETTERS

BY = "input"
_WRAP = (1 << 64) - 1


@dataclass
class KeyTally:
    """How many records, and two sums over the hashes of their keys."""

    records: int = 0
    keys_sum: int = 0
    keys_xor: int = 0

    def add(self, key: bytes | None) -> None:
        told = b"\0" if key is None else b"\1" + key
        value = int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big")
        self.records += 1
        self.keys_sum = (self.keys_sum + value) & _WRAP
        self.keys_xor ^= (value * 0x9E3779B97F4A7C15) & _WRAP


Offsets = Mapping[Partition, int]


class InputReader:
    """Reads ranges of offsets of the query's source again. One thread; closed by its owner."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """``settings`` are librdkafka's, with ``bootstrap.servers``."""
        self._records = CommittedRecords(settings, "exactum-verify")

    def close(self) -> None:
        self._records.close()

    def tally(self, start: Offsets, end: Offsets) -> KeyTally:
        """The records from ``start`` to before ``end``.

        Raises:
            OutcomeUnknown: retention has taken some of them.
            Unavailable: the brokers did not answer for 30 s.
        """
        found = KeyTally()
        for partition, until in sorted(end.items()):
            since = start.get(partition, 0)
            if until > since:
                self._read(partition, since, until, found)
        return found

    def _read(self, partition: Partition, since: int, until: int, into: KeyTally) -> None:
        try:
            for message in self._records.read(partition, since, until):
                into.add(message.key())
        except NotReadable as error:
            raise OutcomeUnknown(
                f"The input {partition[0]}-{partition[1]} cannot be read from offset {since}: "
                f"{error}. Retention may have taken it."
            ) from error


class OutputReader:
    """Reads the keys of transactions from the log."""

    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    def tally(self, transactions: Sequence[Promised]) -> KeyTally:
        """The records of these transactions, whatever became of them.

        Raises:
            OutcomeUnknown: a log cannot be read.
        """
        found = KeyTally()
        for each in transactions:
            for partition, (first, count) in each.cells.items():
                self._read(partition, first, count, each, found)
        return found

    def _read(
        self, partition: Partition, first: int, count: int, of: Promised, into: KeyTally
    ) -> None:
        offset, left = first, count
        while left > 0:
            answer = self._requests.fetch(partition, offset, bytes_max=FETCH_BYTES_MAX)
            before = offset
            records = MemoryRecords(answer.records)
            while records.has_next() and left > 0:
                batch = records.next_batch()
                offset = max(offset, batch.next_offset)
                its = (batch.producer_id, batch.producer_epoch) == of.producer
                if not its or batch.is_control_batch:
                    continue
                for record in batch:
                    into.add(None if record.key is None else bytes(record.key))
                    left -= 1
            if offset == before:
                return


def against_input(
    promise: Promise,
    participant: str,
    start: Offsets | None,
    end: Offsets,
    *,
    source: InputReader,
    output: Callable[[Sequence[Promised]], KeyTally] | None,
) -> Evidence:
    """One epoch of one sink. ``output`` is None where the target has no keys: then counts alone are
    compared, as they are where rows were put aside. ``start`` is None where it is on no record.
    """
    rows, aside = promise.rows(participant), promise.rows(DEAD_LETTERS)
    if start is None:
        why = "where the epoch began to read is on no record any more"
        return Evidence(promise.batch_id, participant, rows, None, Finding.UNKNOWABLE, BY, why)
    try:
        read = source.tally(start, end)
    except OutcomeUnknown as error:
        text = str(error)
        return Evidence(promise.batch_id, participant, rows, None, Finding.UNKNOWABLE, BY, text)
    if output is None or aside:
        why = f"counted, with {aside:,} dead letters" if aside else "records are counted"
        return compared(promise.batch_id, participant, read.records, rows + aside, by=BY, why=why)
    its = [promised(promise.batch_id, p, is_void=False) for p in promise.record.of(participant)]
    written = output(its)
    evidence = compared(promise.batch_id, participant, read.records, written.records, by=BY)
    if evidence.finding is Finding.EXACT and written != read:
        why = "as many records, with other keys than were read"
        return Evidence(
            promise.batch_id, participant, rows, written.records, Finding.DIFFERENT, BY, why
        )
    return evidence


def offsets_of(texts: Sequence[str | None]) -> dict[Partition, int]:
    """All Kafka sources' offsets together; those of other sources are left out."""
    found: dict[Partition, int] = {}
    for text in texts:
        try:
            topics = json.loads(text or "{}")
            found |= {
                (str(topic), int(index)): int(offset)
                for topic, cells in topics.items()
                for index, offset in cells.items()
            }
        except (ValueError, AttributeError, TypeError):
            continue
    return found


def began(promise: Promise, checkpoint: Path) -> dict[Partition, int] | None:
    """Where an epoch began to read: by its record, or for batch 0 by what Spark has written of each
    source's first offsets; None where neither says.
    """
    if promise.record.offsets.start:
        return offsets_of(promise.record.offsets.start)
    if promise.batch_id:
        return None
    texts: list[str | None] = []
    for place in range(len(promise.record.offsets.end)):
        try:
            text = (checkpoint / "sources" / str(place) / "0").read_text(encoding="utf-8")
        except OSError:
            return None
        texts.append(text[max(0, text.find("{")) :])
    return offsets_of(texts)
