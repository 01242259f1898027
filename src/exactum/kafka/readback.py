"""What became of a transaction: by its coordinator where it speaks of exactly this one, else by its
records and its control marker, read straight from the log, aborted ones included.

A record batch's header carries (producer id, producer epoch); a control batch ends the producer's
transaction in that partition. One producer has one transaction at a time, so the first control
batch of the producer behind a transaction's first offset is the one that ended it (Kafka's message
format, v2).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from exactum.errors import OutcomeUnknown
from exactum.kafka.client import MemoryRecords
from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.outcome import Marker, TransactionOutcome, from_description, from_markers
from exactum.kafka.requests import BrokerRequests
from exactum.kafka.routing import error_name
from exactum.kafka.transaction import KafkaTransaction, Partition

NO_LOG = "the topic or the partition is no more"
OUTSIDE_MAX = 3
"""How often an offset is found outside of a log before that is believed."""
OUTSIDE_PAUSE_S = 0.3


@dataclass(frozen=True)
class LoggedRecord:
    """One record as it stands in the log. ``timestamp_ms`` is its creation or append time."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


@dataclass(frozen=True)
class ReadBack:
    """How a transaction ended in one partition, how many of its records are there, and where the
    log ends, in words.
    """

    marker: Marker
    count: int
    end: str


class LogReader:
    """Reads logs of ``partitions`` as they are now; which of them exist is found out at once."""

    def __init__(self, requests: BrokerRequests, partitions: Iterable[Partition]) -> None:
        self._requests = requests
        self._missing = requests.missing(partitions)

    def read_back(
        self,
        partition: Partition,
        start_offset: int,
        producer: tuple[int, int],
        on_records: Callable[[Sequence[LoggedRecord]], None] = lambda records: None,
    ) -> ReadBack:
        """Walk the log from ``start_offset`` to the marker that ended the transaction of
        ``producer``.

        ``producer`` is (producer id, producer epoch). ``on_records`` gets the transaction's
        records, in order, as many at a time as a batch of the log has.

        Raises:
            OutcomeUnknown: the partition could not be read.
        """
        if partition in self._missing:
            return ReadBack(Marker.SHORT, 0, NO_LOG)
        offset, count, truncated, outside = start_offset, 0, False, 0
        while True:
            answer = self._requests.fetch(partition, offset)
            if failure_of(answer.error) is KafkaFailure.OUTSIDE and outside < OUTSIDE_MAX:
                first, end = self._requests.log_bounds(partition)
                if offset < first:
                    offset, truncated = first, True
                    continue
                outside += 1
                if offset > end and outside == OUTSIDE_MAX:
                    return ReadBack(Marker.SHORT, count, ends_at(end))
                time.sleep(
                    OUTSIDE_PAUSE_S
                )  # a leader that has just changed may be asked with what the old one said
                continue
            if answer.error:
                raise OutcomeUnknown(
                    f"{partition[0]}-{partition[1]} could not be read from offset {offset}: "
                    f"{error_name(answer.error)}. Start the query again. The user needs READ on "
                    "the topic (docs/reference/rights.md lists the ACLs)."
                )
            next_offset = offset
            for batch in _batches(answer.records):
                next_offset = max(next_offset, batch.next_offset)
                if batch.producer_id != producer[0] or batch.next_offset <= offset:
                    continue
                if batch.is_control_batch:
                    for control in batch:
                        ended = Marker.COMMIT if control.commit else Marker.ABORT
                        return ReadBack(ended, count, ends_at(answer.high_watermark))
                elif batch.producer_epoch == producer[1]:
                    found = [_logged(record) for record in batch if record.offset >= start_offset]
                    count += len(found)
                    on_records(found)
            if next_offset == offset:
                return ReadBack(Marker.GONE if truncated else Marker.NONE, count, ends_at(offset))
            offset = next_offset


def short_logs(
    requests: BrokerRequests, cells: Iterable[tuple[Partition, tuple[int, int]]]
) -> list[str]:
    """Which logs end before the records that they acknowledged, in words. ``cells``: (first offset,
    records).
    """
    left = list(cells)
    missing = requests.missing({partition for partition, _ in left})
    short: list[str] = []
    for look in range(OUTSIDE_MAX):
        time.sleep(OUTSIDE_PAUSE_S if look else 0)
        ends = requests.end_offsets({p for p, _ in left} - missing, read_committed=False)
        left = [
            (p, (first, count))
            for p, (first, count) in left
            if p in missing or ends[p] < first + count
        ]
        short = [
            f"{topic}-{index}: {count} records from offset {first}, and "
            + (NO_LOG if (topic, index) in missing else ends_at(ends[topic, index]))
            for (topic, index), (first, count) in left
        ]
        if not short:
            break
    return short


def ends_at(offset: int) -> str:
    return f"the log ends at offset {offset}"


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


def without_records(
    requests: BrokerRequests, transactions: Collection[KafkaTransaction]
) -> list[str]:
    """Partitions that hold nothing of a transaction which is still open: its log is another
    one. In words.
    """
    suspects = {(t, p): cell for t in _open_of(requests, transactions) for p, cell in t.partitions}
    leaders = requests.describe_producers({p for _, p in suspects})
    for (t, partition), (first, _) in list(suspects.items()):
        state = leaders[partition].get(t.producer_id)
        current = None if state is None else (state.producer_epoch, state.transaction_start_offset)
        if current == (t.producer_epoch, first):
            del suspects[t, partition]
    still_open = _open_of(requests, {t for t, _ in suspects})  # what is ended proves nothing
    return [
        f"{topic}-{index}: {count} records from offset {first}, and the log there holds others"
        for (t, (topic, index)), (first, count) in suspects.items()
        if t in still_open
    ]


def _open_of(
    requests: BrokerRequests, transactions: Collection[KafkaTransaction]
) -> set[KafkaTransaction]:
    found = requests.describe_transactions(t.transactional_id for t in transactions)
    return {
        t
        for t in transactions
        if from_description(found[t.transactional_id], *t.producer) is TransactionOutcome.OPEN
    }


K = TypeVar("K")


def outcomes_of(
    requests: BrokerRequests, transactions: Mapping[K, KafkaTransaction]
) -> dict[K, TransactionOutcome]:
    """The outcome of each.

    Raises:
        OutcomeUnknown: a log could not be read.
        Unavailable, SettingRefused: as the requests.
    """
    found = requests.describe_transactions(t.transactional_id for t in transactions.values())
    outcomes = {
        key: from_description(found[t.transactional_id], *t.producer)
        for key, t in transactions.items()
    }
    unknown = [key for key, outcome in outcomes.items() if outcome is TransactionOutcome.UNKNOWN]
    logs = LogReader(requests, {p for key in unknown for p, _ in transactions[key].partitions})
    for key in unknown:
        t = transactions[key]
        markers: list[Marker] = []
        for partition, (first_offset, _) in t.partitions:
            markers.append(logs.read_back(partition, first_offset, t.producer).marker)
            if markers[-1] in (Marker.COMMIT, Marker.ABORT):
                break
        outcomes[key] = from_markers(markers, found[t.transactional_id], *t.producer)
    return outcomes
