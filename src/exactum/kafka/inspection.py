"""What an operator sees of Kafka's transactions: of one sink of one query, of a cluster, and
those that hang.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from exactum.errors import CheckpointRefused, OutcomeUnknown, SettingRefused
from exactum.kafka.evidence import KafkaEvidence
from exactum.kafka.log_requests import ProducerState
from exactum.kafka.outcome import TransactionDescription, TransactionOutcome, from_description
from exactum.kafka.participant import NEVER_TIMES_OUT_MS, KafkaParticipant
from exactum.kafka.producer_pool import ProducerPlan
from exactum.kafka.readback import outcomes_of
from exactum.kafka.requests import TRANSACTION_LOG, UNSETTLED, BrokerRequests
from exactum.kafka.routing import error_name
from exactum.kafka.transaction import NAME, KafkaTransaction, Partition
from exactum.protocol.inspection import Evidence, Promise, TransactionState, TransactionView
from exactum.protocol.model import Incarnation, PreparedTransaction


class KafkaInspector:
    """Of one sink of one query; see ``protocol.inspection.Inspector``."""

    def __init__(self, plan: ProducerPlan, admin: BrokerRequests) -> None:
        self._plan = plan
        self._admin = admin
        self._participant: KafkaParticipant | None = None

    @property
    def name(self) -> str:
        return self._plan.scope.participant

    def list_open(self) -> Sequence[TransactionView]:
        scope = self._plan.scope
        names = [
            name
            for name in self._admin.list_transactions(UNSETTLED, scope.broker_pattern())
            if scope.incarnation_of(name) is not None
        ]
        return [
            _of_description(name, found)
            for name, found in self._admin.describe_transactions(names).items()
            if found is not None and found.start_time_ms >= 0
        ]

    def describe(self, prepared: Sequence[PreparedTransaction]) -> Sequence[TransactionView]:
        """By the coordinators, and by the markers in the log where these have moved on."""
        transactions = {p.identity: KafkaTransaction.of(p) for p in prepared}
        found = self._admin.describe_transactions(t.transactional_id for t in transactions.values())
        try:
            outcomes = outcomes_of(self._admin, transactions)
        except OutcomeUnknown:
            outcomes = dict.fromkeys(transactions, TransactionOutcome.UNKNOWN)
        return [
            self._of_record(p, transactions[p.identity], found, outcomes[p.identity])
            for p in prepared
        ]

    def evidence(
        self, promises: Sequence[Promise], onwards: Callable[[], Sequence[Promise]]
    ) -> Sequence[Evidence]:
        first, last = promises[0].batch_id, promises[-1].batch_id
        return KafkaEvidence(self.name, self._admin, onwards, first, last).evidence()

    def participant(self) -> KafkaParticipant:
        if self._participant is None:
            self._participant = KafkaParticipant(self._plan, self._admin, self.cluster_id())
        return self._participant

    def cluster_id(self) -> str:
        """Of the cluster that answers."""
        return self._admin.cluster_id()

    def refuse_other(self, trace: Mapping[str, str]) -> None:
        """See ``protocol.inspection.Traced``."""
        found, recorded = self.cluster_id(), trace["kafka"]
        if found != recorded:
            raise CheckpointRefused(
                "KAFKA_OTHER_CLUSTER",
                f"Kafka cluster {found} answers at {self._plan.bootstrap_servers}, and the "
                f"transactions of sink {self.name!r} are in cluster {recorded}, so nothing is "
                "known of them. Nothing was changed. Look where that address leads to now (a "
                "name, a tunnel, a cluster made anew), or give the right one by --sinks.",
            )
        scope = self._plan.scope
        if scope.prefix != trace["prefix"]:
            raise SettingRefused(
                "SINKS_OPTION",
                f"Sink {self.name!r} is given with transactional_id_prefix={scope.prefix!r}, and "
                f"its transactions begin with {trace['prefix']!r}. Nothing was changed. Give the "
                "sink by --sinks as the query had it.",
            )

    def close(self) -> None:
        self._admin.close()

    def _of_record(
        self,
        prepared: PreparedTransaction,
        transaction: KafkaTransaction,
        described: Mapping[str, TransactionDescription | None],
        outcome: TransactionOutcome,
    ) -> TransactionView:
        name, scope = transaction.transactional_id, self._plan.scope
        found = described[name]
        same = found is not None and (
            (found.producer_id, found.producer_epoch) == transaction.producer
        )
        details = [
            f"{topic}-{index}: {count} records from offset {first}"
            for (topic, index), (first, count) in transaction.partitions
        ]
        details.append(f"producer {transaction.producer_id}, epoch {transaction.producer_epoch}")
        if found is None:
            details.append("the coordinator does not know this id any more")
        elif same:
            details.append(f"the coordinator says {found.state}")
        else:
            details.append(
                f"the id has gone on to producer {found.producer_id}, epoch {found.producer_epoch}"
            )
        at_hand = found if same and outcome is TransactionOutcome.OPEN else None
        return TransactionView(
            self.name,
            prepared.identity,
            scope.query_id,
            scope.incarnation_of(name),
            _state(outcome),
            None if at_hand is None else at_hand.start_time_ms,
            None if at_hand is None else _timeout_ms(at_hand),
            rows=prepared.rows,
            details=tuple(details),
        )


def _of_description(name: str, found: TransactionDescription) -> TransactionView:
    match = NAME.fullmatch(name)
    transaction = KafkaTransaction(name, found.producer_id, found.producer_epoch)
    partitions = ", ".join(f"{topic}-{index}" for topic, index in sorted(found.partitions))
    return TransactionView(
        match["participant"] if match else None,
        transaction.identity if match else name,
        match["query"] if match else None,
        Incarnation(match["incarnation"]) if match else None,
        _state(from_description(found, *transaction.producer)),
        found.start_time_ms if found.start_time_ms >= 0 else None,
        _timeout_ms(found),
        details=(
            f"producer {found.producer_id}, epoch {found.producer_epoch}",
            f"the coordinator says {found.state}",
            f"partitions {partitions}" if partitions else "no partition yet",
        ),
    )


def _state(outcome: TransactionOutcome) -> TransactionState:
    return TransactionState(outcome.value)


def _timeout_ms(found: TransactionDescription) -> int | None:
    return None if found.timeout_ms == NEVER_TIMES_OUT_MS else found.timeout_ms


# ---- hanging transactions --------------------------------------------------------------------


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
    """Search all partitions that the user may see, or those of ``topics``, for transactions that
    are open there, and whose producer has no coordinator that would end them: they hold the last
    stable offset back for ever (KIP-664).

    Such is one where no coordinator knows its producer, or the one that does has not this partition
    among those that it will write a marker to. The order of the requests makes that certain: a
    transaction is known to its coordinator before its first record is written. So one that is open
    in the partition, that the coordinator then does not account for, and that is still the same
    open one after that, is nobody's.

    That needs an answer of every coordinator, and the right to see every transactional id: where
    one of the two is missing, nothing is called hanging. What was written to less than
    ``idle_ms_min`` ago is not judged, as Kafka's own tool does.

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
    denied: dict[Partition, int] = {}
    open_ones = _open_producers(admin, blocked, denied)
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
    still = _open_producers(admin, {partition for partition, _ in suspects}, {})
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
    admin: BrokerRequests, partitions: Iterable[Partition], denied: dict[Partition, int]
) -> list[_Open]:
    """The producers with an open transaction; ``denied`` as in ``describe_producers``."""
    return [
        (partition, producer)
        for partition, producers in admin.describe_producers(partitions, None, denied).items()
        for producer in producers.values()
        if producer.transaction_start_offset >= 0
    ]


def _transaction(partition: Partition, producer: ProducerState) -> tuple[Partition, int, int, int]:
    """What names it: of its last write it may have had another one since."""
    return (
        partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.transaction_start_offset,
    )
