"""What stands in a log: what readers see of it; and what became of a transaction, by its
coordinator where it speaks of exactly this one, else by its records and its control marker.

A record batch's header carries (producer id, producer epoch); a control batch ends the producer's
transaction in that partition. One producer has one transaction at a time, so the first control
batch of the producer behind a transaction's first offset is the one that ended it (Kafka's message
format, v2).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from exactum.errors import OutcomeUnknown, Unavailable
from exactum.kafka.client import MemoryRecords
from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.log_requests import MAGIC
from exactum.kafka.outcome import from_description, from_marker
from exactum.kafka.requests import BrokerRequests
from exactum.kafka.routing import error_name
from exactum.kafka.transaction import KafkaTransaction, Partition
from exactum.protocol.inspection import TransactionState

NO_LOG = "the topic or the partition is no more"
OUTSIDE_MAX = 3
"""How often an offset is found outside of a log before that is believed."""
OUTSIDE_PAUSE_S = 0.3


@dataclass(frozen=True)
class LoggedRecord:
    """One record as it stands in the log. ``timestamp_ms`` is its creation or append time."""

    partition: Partition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


@dataclass(frozen=True)
class ReadBack:
    """Whether a transaction was committed or aborted in one partition (None: no marker is there),
    how many of its records are there, and where the log ends, in words. ``begins``: they begin
    where they were written first, or the log has lost its begin.
    """

    is_commit: bool | None
    count: int
    end: str
    begins: bool = False

    @property
    def own(self) -> bool | None:
        """``is_commit``, where the marker is that of this transaction. Else a COMMIT is somebody
        else's: in another cluster of the same id producers are numbered from 0 as well.
        """
        return None if self.is_commit and not self.begins else self.is_commit


class LogWalk:
    """The batches of one log from ``offset`` on, aborted ones too, that begin before
    ``end_offset``; and what its leader has told of it meanwhile: where it ``begins`` and ``ends``.
    """

    def __init__(
        self,
        requests: BrokerRequests,
        partition: Partition,
        offset: int,
        end_offset: int | None = None,
    ) -> None:
        self._requests = requests
        self._partition = partition
        self._offset = offset
        self._end_offset = math.inf if end_offset is None else end_offset
        self.begins = self.ends = 0

    def __iter__(self) -> Iterator[Any]:
        """
        Raises:
            OutcomeUnknown: the partition could not be read, or holds another format.
            SettingRefused: READ on the topic is not granted.
        """
        outside = 0
        while True:
            answer = self._requests.fetch(self._partition, self._offset)
            if failure_of(answer.error_code) is KafkaFailure.OUTSIDE and outside < OUTSIDE_MAX:
                self.begins, self.ends = self._requests.log_bounds(self._partition)
                if self._offset < self.begins:
                    self._offset = self.begins
                    continue
                outside += 1
                if self._offset > self.ends and outside == OUTSIDE_MAX:
                    return
                # a leader that has just changed may be asked with what the old one said
                time.sleep(OUTSIDE_PAUSE_S)
                continue
            if answer.error_code:
                raise OutcomeUnknown(
                    f"{named(self._partition)} could not be read from offset {self._offset}: "
                    f"{error_name(answer.error_code)}. Try again. The user needs READ on the topic "
                    "(docs/reference/rights.md lists the ACLs)."
                )
            self.begins, self.ends = answer.log_start_offset, answer.high_watermark
            following = self._offset
            for batch in _batches(answer, self._partition):
                if batch.base_offset >= self._end_offset:
                    return
                following = max(following, batch.next_offset)
                if batch.next_offset > self._offset:
                    yield batch
            if following == self._offset or following >= self._end_offset:
                return  # without asking: a broker holds a request for what is not written yet
            self._offset = following


def _batches(answer: Any, partition: Partition) -> Iterator[Any]:
    """Those that are there in full; a fetch may end in the midst of one."""
    records = MemoryRecords(bytes(answer.records or b""))
    while (batch := records.next_batch()) is not None:
        if batch.magic != MAGIC:
            raise OutcomeUnknown(
                f"{named(partition)} holds a batch of format {batch.magic} at offset "
                f"{batch.base_offset}, which has no transactions: only logs of Kafka 0.11 and "
                "later can be read here."
            )
        yield batch


def named(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


class LogReader:
    """Reads logs of ``partitions`` as they are now; which are ``missing`` is found out at once."""

    def __init__(self, requests: BrokerRequests, partitions: Iterable[Partition]) -> None:
        self._requests = requests
        self.missing = requests.missing(partitions)

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
        if partition in self.missing:
            return ReadBack(None, 0, NO_LOG)
        walk, count, begins = LogWalk(self._requests, partition, start_offset), 0, False
        for batch in walk:
            if batch.producer_id != producer[0]:
                continue
            if batch.is_control_batch:
                for marker in batch:  # the log cleaner leaves some empty
                    begins |= walk.begins > start_offset
                    return ReadBack(bool(marker.commit), count, ends_at(walk.ends), begins)
            elif batch.producer_epoch == producer[1]:
                found = [_logged(partition, r) for r in batch if r.offset >= start_offset]
                begins |= batch.base_offset <= start_offset
                count += len(found)
                on_records(found)
        return ReadBack(None, count, ends_at(walk.ends))


def ends_at(offset: int) -> str:
    return f"the log ends at offset {offset}"


def _logged(partition: Partition, record: Any) -> LoggedRecord:
    return LoggedRecord(
        partition,
        record.offset,
        key=None if record.key is None else bytes(record.key),
        value=None if record.value is None else bytes(record.value),
        headers=tuple((name, None if v is None else bytes(v)) for name, v in record.headers or ()),
        timestamp_ms=record.timestamp,
    )


# ---- what readers see ------------------------------------------------------------------------


READ_TIMEOUT_S = 30.0
READ_PAUSE_S = 0.1
READ_BYTES_MAX = 1 << 20


class RangeGone(Exception):
    """Nothing is at the begin of a range: retention took it, or the topic was made anew or deleted.
    The message is the brokers' reason.
    """


def committed_records(
    requests: BrokerRequests, partition: Partition, since: int, until: int | None = None
) -> Iterator[LoggedRecord]:
    """Records of committed transactions, and of none, from ``since`` to before ``until``, which
    was an end of what is committed; None: the end that the partition has.

    Raises:
        RangeGone: also in the midst of it.
        SettingRefused: READ on the topic is not granted.
        Unavailable: nothing came for 30 s, or the brokers cannot give it.
    """
    if requests.missing([partition]):
        raise RangeGone(NO_LOG)
    if until is None:
        until = requests.end_offsets([partition], read_committed=True)[partition]
    offset, came_s = since, time.monotonic()
    while offset < until:
        answer = requests.fetch(partition, offset, bytes_max=READ_BYTES_MAX, read_committed=True)
        if failure_of(answer.error_code) is KafkaFailure.OUTSIDE:
            raise RangeGone(error_name(answer.error_code))
        if answer.error_code:
            raise Unavailable(f"{named(partition)}: {error_name(answer.error_code)}.")
        begun = sorted((t.first_offset, t.producer_id) for t in answer.aborted_transactions or ())
        aborted, following = set[int](), offset
        for batch in _batches(answer, partition):
            while begun and begun[0][0] < batch.next_offset:
                aborted.add(begun.pop(0)[1])
            if batch.is_control_batch:
                aborted.discard(batch.producer_id)  # it ends what was open
            elif not (batch.is_transactional and batch.producer_id in aborted):
                yield from (_logged(partition, r) for r in batch if offset <= r.offset < until)
            following = max(following, batch.next_offset)
        if following > offset:
            offset, came_s = following, time.monotonic()
        elif time.monotonic() - came_s > READ_TIMEOUT_S:
            raise Unavailable(
                f"{named(partition)} gave nothing from offset {offset} for {READ_TIMEOUT_S:.0f} s."
            )
        else:
            time.sleep(READ_PAUSE_S)


# ---- what became of transactions -------------------------------------------------------------


K = TypeVar("K")


def outcomes_of(
    requests: BrokerRequests, transactions: Mapping[K, KafkaTransaction]
) -> dict[K, TransactionState]:
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
    unknown = [key for key, outcome in outcomes.items() if outcome is TransactionState.UNKNOWN]
    logs = LogReader(requests, {p for key in unknown for p, _ in transactions[key].partitions})
    for key in unknown:
        t = transactions[key]
        ends = (logs.read_back(p, first, t.producer).own for p, (first, _) in t.partitions)
        is_commit = next((end for end in ends if end is not None), None)
        outcomes[key] = from_marker(is_commit, found[t.transactional_id], *t.producer)
    return outcomes
