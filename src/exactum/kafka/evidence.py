"""What the logs of a Kafka sink hold of a range of epochs.

A partition's log is read by the headers of its record batches, and counted by producer: by
kafka-python, which did not write it. Of a batch only the header is read, so nothing is
decompressed. A control batch ends its producer's transaction; its one record is never compressed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exactum.errors import OutcomeUnknown
from exactum.kafka.client import MemoryRecords
from exactum.kafka.requests import BrokerRequests
from exactum.kafka.routing import error_name
from exactum.kafka.transaction import Partition
from exactum.protocol.inspection import Evidence, Finding, Promise, compared
from exactum.protocol.model import PreparedTransaction

# ---- a log, counted --------------------------------------------------------------------------


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


# ---- epochs ----------------------------------------------------------------------------------


BY = "log"
FETCH_BYTES_MAX = 8 << 20


@dataclass(frozen=True)
class Promised:
    """One transaction by its record: where its records must be."""

    batch_id: int
    transactional_id: str
    producer: Producer
    rows: int
    cells: Mapping[Partition, tuple[int, int]]
    """(first offset, records) by partition."""
    cluster: str
    is_superseded: bool = False
    """Of a record that another one supersedes: nothing of it may be visible."""


@dataclass
class _Sum:
    found: int = 0
    extra: int = 0
    open: int = 0
    unknown: list[str] = field(default_factory=list)
    why: list[str] = field(default_factory=list)


class KafkaEvidence:
    """Of one participant. ``promises`` reads the records: twice, before and after the logs' ends
    are looked at, so that what is decided meanwhile is known. The second reading is judged.
    """

    def __init__(
        self,
        participant: str,
        requests: BrokerRequests,
        promises: Callable[[], Sequence[Promise]],
        first: int,
        last: int,
    ) -> None:
        self._participant = participant
        self._requests = requests
        self._first, self._last = first, last
        self._cluster = requests.cluster_id()
        starts = first_offsets(_promised_by(promises(), participant))
        gone = requests.missing(starts)
        starts = {p: offset for p, offset in starts.items() if p not in gone}
        self._ends = requests.end_offsets(starts, read_committed=False) if starts else {}
        self._starts = starts
        second = promises()
        self._wanted = [p for p in second if first <= p.batch_id <= last]
        self._known = _promised_by(second, participant)
        compacted = {
            topic
            for topic in {topic for topic, _ in starts}
            if "compact"
            in requests.configs("topic", topic, ("cleanup.policy",)).get("cleanup.policy", "")
        }
        self._compacted = compacted

    def evidence(self) -> list[Evidence]:
        """Walk the logs.

        Raises:
            OutcomeUnknown: a log cannot be read, or holds another format.
            SettingRefused: READ on a topic is not granted.
        """
        logs = {partition: self._count(partition) for partition in sorted(self._ends)}
        named = {each.producer for each in self._known}
        ours = {producer_id for producer_id, _ in named}
        sums: dict[int, _Sum] = defaultdict(_Sum)
        for each in self._known:
            if self._first <= each.batch_id <= self._last:
                self._sum(each, logs, sums[each.batch_id])
        stray = sum(
            counted.records
            for log in logs.values()
            for producer, counted in log.by_producer.items()
            if producer not in named and producer[0] in ours and counted.is_commit
        )
        evidence = [self._evidence(promise, sums[promise.batch_id]) for promise in self._wanted]
        if stray and evidence:
            evidence[-1] = Evidence(
                evidence[-1].batch_id,
                self._participant,
                evidence[-1].promised,
                evidence[-1].promised + stray,
                Finding.EXTRA,
                BY,
                f"{stray:,} records are committed by this query's producers, and no record names "
                "them; which epoch they are of cannot be told",
            )
        return evidence

    # ---- small steps -------------------------------------------------------------------------

    def _count(self, partition: Partition) -> LogCount:
        def fetch(offset: int) -> tuple[bytes, int]:
            answer = self._requests.fetch(partition, offset, bytes_max=FETCH_BYTES_MAX)
            if answer.error:
                first, end = self._requests.log_bounds(partition)
                if first > offset:
                    return b"", first
                if offset >= end:
                    return b"", first
                raise OutcomeUnknown(
                    f"{partition[0]}-{partition[1]} could not be read from offset {offset}: "
                    f"{error_name(answer.error)}. Verify it again."
                )
            return answer.records, answer.log_start_offset

        return count(fetch, self._starts[partition], self._ends[partition])

    def _sum(self, each: Promised, logs: Mapping[Partition, LogCount], into: _Sum) -> None:
        if each.cluster not in ("", self._cluster):
            into.unknown.append(f"it is in cluster {each.cluster}, and this is {self._cluster}")
            return
        if each.rows and not each.cells:
            into.unknown.append("its record does not say where in the log it is")
            return
        for partition, (first, promised_count) in each.cells.items():
            name = f"{partition[0]}-{partition[1]}"
            log = logs.get(partition)
            if log is None:
                into.why.append(f"{name} is no more")
                continue
            counted = log.by_producer.get(each.producer)
            records = 0 if counted is None else counted.records
            ended = None if counted is None else counted.is_commit
            if each.is_superseded:
                if ended:
                    into.extra += records
                    into.why.append(f"{name}: {records:,} of a superseded record are visible")
                continue
            if log.start_offset > first and records < promised_count:
                into.unknown.append(f"{name}: retention has taken offsets below {log.start_offset}")
            elif partition[0] in self._compacted and records < promised_count:
                into.unknown.append(f"{name} is compacted: older records of a key are gone")
            elif ended is None and counted is not None:
                into.open += records
                into.why.append(f"{name}: its transaction is open")
            elif ended is False:
                into.why.append(f"{name}: its transaction was aborted")
            else:
                into.found += records
                if records < promised_count:
                    into.why.append(f"{name}: {records:,} of {promised_count:,} records")

    def _evidence(self, promise: Promise, of: _Sum) -> Evidence:
        rows = promise.rows(self._participant)
        why = "; ".join(dict.fromkeys([*of.unknown, *of.why]))
        name = self._participant
        if of.extra:
            return Evidence(
                promise.batch_id, name, rows, of.found + of.extra, Finding.EXTRA, BY, why
            )
        if of.unknown:
            return Evidence(promise.batch_id, name, rows, None, Finding.UNKNOWABLE, BY, why)
        if of.open and of.found + of.open == rows:
            return Evidence(promise.batch_id, name, rows, of.found, Finding.IN_DOUBT, BY, why)
        return compared(promise.batch_id, name, rows, of.found, by=BY, why=why)


def _promised_by(promises: Sequence[Promise], participant: str) -> list[Promised]:
    """All transactions of one participant, those of superseded records among them."""
    return [
        promised(promise.batch_id, prepared, is_superseded=superseded)
        for promise in promises
        for prepared, superseded in (
            *((p, False) for p in promise.record.of(participant)),
            *((p, True) for p in promise.superseded if p.participant == participant),
        )
    ]


def promised(batch_id: int, prepared: PreparedTransaction, *, is_superseded: bool) -> Promised:
    """What the payload of a record says, read by itself."""
    payload = json.loads(prepared.payload)
    return Promised(
        batch_id,
        str(payload["transactional_id"]),
        (int(payload["producer_id"]), int(payload["producer_epoch"])),
        prepared.rows,
        {
            (topic, int(index)): (int(first), int(count))
            for topic, cells in payload.get("partitions", {}).items()
            for index, (first, count) in cells.items()
        },
        str(payload.get("cluster_id", "")),
        is_superseded,
    )


def first_offsets(promised: Sequence[Promised]) -> dict[Partition, int]:
    """Where the oldest of them begins in each partition."""
    found: dict[Partition, int] = {}
    for each in promised:
        for partition, (first, _) in each.cells.items():
            found[partition] = min(first, found.get(partition, first))
    return found
