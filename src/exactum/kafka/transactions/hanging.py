"""Hanging transactions: open in a partition, and its producer has no coordinator that would end
them. They hold the last stable offset back for ever (KIP-664).

A transaction is hanging where no coordinator knows its producer, or the one that does has not this
partition among those that it will write a marker to. The order of the looks makes that certain: a
transaction is known to its coordinator before its first record is written. So one that is open in
the partition, that the coordinator then does not account for, and that is still the same open one
after that, is nobody's.

That needs a look at every coordinator, and the right to see every transactional id: where one of
the two is missing, nothing is called hanging. What was written to a short time ago is left alone
besides, as Kafka's own tool does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exactum.kafka.requests.broker_requests import TRANSACTION_LOG, BrokerRequests
from exactum.kafka.requests.log_requests import ProducerState
from exactum.kafka.requests.routing import error_name
from exactum.kafka.transaction import Partition

_Open = tuple[Partition, ProducerState]


@dataclass(frozen=True)
class HangingTransaction:
    """``transactional_id`` is that of the producer, None where no coordinator knows it;
    ``coordinator_says`` is what the one that does says of it.

    ``last_stable_offset`` and ``high_watermark`` are those of its partition: what lies between them
    is hidden from readers.
    """

    partition: Partition
    producer: ProducerState
    transactional_id: str | None
    coordinator_says: str
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True)
class BlockedPartitions:
    """What a search has found. ``held`` are the partitions with something open, ``hanging`` what of
    it is nobody's. ``unseen`` says what could not be looked at: while there is any, an empty
    ``hanging`` proves nothing. ``young`` are transactions that look like it and were written to too
    short a time ago to be judged.
    """

    looked_at: int
    blocked: tuple[Partition, ...]
    hanging: tuple[HangingTransaction, ...]
    unseen: tuple[str, ...]
    young: int = 0


def find_hanging(
    admin: BrokerRequests, topics: Sequence[str] = (), *, idle_ms_min: int
) -> BlockedPartitions:
    """Search all partitions that the user may see, or those of ``topics``. What was written to less
    than ``idle_ms_min`` ago is not judged.

    Raises:
        ExactumError: the brokers did not answer, or refused.
    """
    has_leader = admin.all_partitions()
    wanted = [p for p, led in has_leader.items() if led and (not topics or p[0] in topics)]
    unseen = [
        f"{topic}-{index} has no leader"
        for (topic, index), led in sorted(has_leader.items())
        if not led and (not topics or topic in topics or topic == TRANSACTION_LOG)
    ]
    unseen += [f"no topic {t!r} can be seen" for t in topics if t not in {p[0] for p in wanted}]
    # A coordinator that nobody reaches accounts for nothing: all of its transactions would look as
    # if they were nobody's.
    coordinators = [led for (topic, _), led in has_leader.items() if topic == TRANSACTION_LOG]
    if not coordinators:
        unseen.append(
            f"the topic {TRANSACTION_LOG} cannot be seen (DESCRIBE on it), so nobody can tell "
            "whether every coordinator answers"
        )
    sees_all = admin.may_describe_any_id()
    if not sees_all:
        unseen.append(
            "this user may not see all transactional ids (DESCRIBE on '*'), so nobody can tell "
            "whose the open transactions are"
        )
    stable = admin.end_offsets(wanted, read_committed=True)
    ends = admin.end_offsets(wanted, read_committed=False)
    blocked = [p for p in wanted if stable[p] < ends[p]]
    open_ones, denied = _open_producers(admin, blocked)
    unseen += [f"{t}-{i}: {error_name(code)}" for (t, i), code in sorted(denied.items())]
    names = admin.ids_of_producers({producer.producer_id for _, producer in open_ones})
    known = admin.describe_transactions(set(names.values()))
    suspects: dict[_Open, tuple[str | None, str]] = {}
    for partition, producer in open_ones:
        name = names.get(producer.producer_id)
        description = known.get(name) if name is not None else None
        if description is None:
            says = "no coordinator knows this producer"
        elif partition not in description.partitions:
            says = f"{description.state}, without this partition"
        else:
            continue
        suspects[partition, producer] = (name, says)
    still, _ = _open_producers(admin, {partition for partition, _ in suspects})
    same = {_transaction(*each) for each in still}
    now_ms = int(time.time() * 1000)
    hanging = tuple(
        HangingTransaction(partition, producer, name, says, stable[partition], ends[partition])
        for (partition, producer), (name, says) in suspects.items()
        if _transaction(partition, producer) in same
    )
    if not coordinators or not all(coordinators) or not sees_all:
        hanging = ()
    idle = tuple(h for h in hanging if now_ms - h.producer.last_write_ms >= idle_ms_min)
    return BlockedPartitions(
        len(wanted),
        tuple(sorted({partition for partition, _ in open_ones})),
        idle,
        tuple(unseen),
        len(hanging) - len(idle),
    )


def _open_producers(
    admin: BrokerRequests, partitions: Iterable[Partition]
) -> tuple[list[_Open], dict[Partition, int]]:
    """The producers with an open transaction, and the error's code of those partitions that the
    user may not ask about.
    """
    found, denied = admin.seen_producers(partitions)
    open_ones = [
        (partition, producer)
        for partition, producers in found.items()
        for producer in producers.values()
        if producer.transaction_start_offset >= 0
    ]
    return open_ones, denied


def _transaction(partition: Partition, producer: ProducerState) -> tuple[Partition, int, int, int]:
    """What names it: of its last write it may have had another one since."""
    return (
        partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.transaction_start_offset,
    )
