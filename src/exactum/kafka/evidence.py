"""What the logs of a Kafka sink hold of a range of epochs.

A partition's log is read by the headers of its record batches, and counted by producer: by
kafka-python, which did not write it. Of a batch only the header is read, so nothing is
decompressed. A control batch ends its producer's transaction; its one record is never compressed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from exactum.kafka.readback import LogWalk
from exactum.kafka.requests import BrokerRequests
from exactum.kafka.transaction import KafkaTransaction, Partition
from exactum.protocol.inspection import Evidence, Finding, Promise, compared

BY = "log"
POLICY = "cleanup.policy"


@dataclass
class _Counted:
    """What the log holds of one transaction: its records, and the marker that ended it."""

    records: int = 0
    is_commit: bool | None = None


@dataclass
class _LogCount:
    """Of one partition, by (producer id, producer epoch). ``begins``: where the log does now."""

    compacted: bool
    begins: int = 0
    by_producer: dict[tuple[int, int], _Counted] = field(default_factory=dict)

    def read(self, walk: LogWalk) -> _LogCount:
        """
        Raises:
            OutcomeUnknown: as ``LogWalk``.
        """
        for batch in walk:
            if batch.is_control_batch:
                self._end(batch)
            elif batch.is_transactional:
                producer = batch.producer_id, batch.producer_epoch
                self.by_producer.setdefault(producer, _Counted()).records += batch.records_count
        self.begins = walk.begins
        return self

    def _end(self, batch: Any) -> None:
        """A producer has one transaction at a time. The epoch of its marker may be higher than that
        of its records: a coordinator that fences raises it with the abort.
        """
        marker = next(batch, None)  # the log cleaner leaves some empty
        if marker is None or not (marker.commit or marker.abort):
            return
        for (producer_id, _), counted in self.by_producer.items():
            if producer_id == batch.producer_id and counted.is_commit is None:
                counted.is_commit = bool(marker.commit)


@dataclass(frozen=True)
class _Promised:
    """A transaction that a record names. ``is_superseded``: of one that another supersedes (see
    ``Promise``).
    """

    batch_id: int
    transaction: KafkaTransaction
    is_superseded: bool


@dataclass
class _Sum:
    found: int = 0
    extra: int = 0
    open: int = 0
    unknown: list[str] = field(default_factory=list)
    why: list[str] = field(default_factory=list)


def evidence_of(
    participant: str,
    requests: BrokerRequests,
    promises: Callable[[], Sequence[Promise]],
    first: int,
    last: int,
) -> list[Evidence]:
    """Of one participant, of the epochs ``first`` to ``last``. ``promises`` reads the records:
    twice, before and after the logs' ends are looked at, so that what is decided meanwhile is
    known. The second reading is judged.

    Raises:
        OutcomeUnknown: a log cannot be read, or holds another format.
        SettingRefused: READ on the topic is not granted.
    """
    cluster = requests.cluster_id()
    starts = _first_offsets(_promised(promises(), participant))
    there = sorted(starts.keys() - requests.missing(starts))
    ends = requests.end_offsets(there, read_committed=False)
    judged = promises()
    known = _promised(judged, participant)
    policies = {
        topic: requests.configs("topic", topic, (POLICY,)).get(POLICY, "")
        for topic in {topic for topic, _ in there}
    }
    logs = {
        p: _LogCount("compact" in policies[p[0]]).read(LogWalk(requests, p, starts[p], ends[p]))
        for p in there
    }
    named = {each.transaction.producer for each in known}
    ours = {producer_id for producer_id, _ in named}
    sums: dict[int, _Sum] = defaultdict(_Sum)
    for each in known:
        if each.transaction.cluster_id in ("", cluster):
            _add(each, logs, sums[each.batch_id])
        else:
            sums[each.batch_id].unknown.append(
                f"it is in cluster {each.transaction.cluster_id}, and this is {cluster}"
            )
    stray = sum(
        counted.records
        for log in logs.values()
        for producer, counted in log.by_producer.items()
        if producer not in named and producer[0] in ours and counted.is_commit
    )
    evidence = [
        _evidence(participant, promise, sums[promise.batch_id])
        for promise in judged
        if first <= promise.batch_id <= last
    ]
    if stray and evidence:
        evidence[-1] = replace(
            evidence[-1],
            found=evidence[-1].promised + stray,
            finding=Finding.EXTRA,
            why=f"{stray:,} records are committed by this query's producers, and no record "
            "names them; which epoch they are of cannot be told",
        )
    return evidence


def _add(each: _Promised, logs: Mapping[Partition, _LogCount], into: _Sum) -> None:
    for partition, (first, promised_count) in each.transaction.partitions:
        name = f"{partition[0]}-{partition[1]}"
        log = logs.get(partition)
        if log is None:
            into.why.append(f"{name} is no more")
            continue
        counted = log.by_producer.get(each.transaction.producer)
        records = 0 if counted is None else counted.records
        ended = None if counted is None else counted.is_commit
        if each.is_superseded:
            if ended:
                into.extra += records
                into.why.append(f"{name}: {records:,} of a superseded record are visible")
            continue
        if log.begins > first and records < promised_count:
            into.unknown.append(f"{name}: retention has taken offsets below {log.begins}")
        elif log.compacted and records < promised_count:
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


def _evidence(participant: str, promise: Promise, of: _Sum) -> Evidence:
    rows = promise.rows(participant)
    why = "; ".join(dict.fromkeys([*of.unknown, *of.why]))
    found = compared(promise.batch_id, participant, rows, of.found, by=BY, why=why)
    if of.extra and promise.record.of(participant):
        return replace(found, found=of.found + of.extra, finding=Finding.EXTRA)
    if of.unknown:
        return replace(found, found=None, finding=Finding.UNKNOWABLE)
    if of.open and of.found + of.open == rows:
        return replace(found, finding=Finding.IN_DOUBT)
    return found


def _promised(promises: Sequence[Promise], participant: str) -> list[_Promised]:
    """All transactions of one participant, those of superseded records among them."""
    return [
        _Promised(promise.batch_id, KafkaTransaction.of(prepared), is_superseded)
        for promise in promises
        for prepared, is_superseded in (
            *((p, False) for p in promise.record.of(participant)),
            *((p, True) for p in promise.superseded if p.participant == participant),
        )
    ]


def _first_offsets(promised: Sequence[_Promised]) -> dict[Partition, int]:
    """Where the oldest of them begins in each partition."""
    found: dict[Partition, int] = {}
    for each in promised:
        for partition, (first, _) in each.transaction.partitions:
            found[partition] = min(first, found.get(partition, first))
    return found
