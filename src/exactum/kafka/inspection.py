"""What an operator sees of Kafka's transactions: of one sink of one query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from exactum.errors import CheckpointRefused, OutcomeUnknown, SettingRefused
from exactum.kafka.evidence import KafkaEvidence
from exactum.kafka.outcome import TransactionDescription, TransactionOutcome, from_description
from exactum.kafka.participant import NEVER_TIMES_OUT_MS, KafkaParticipant
from exactum.kafka.producer_pool import ProducerPlan
from exactum.kafka.readback import outcomes_of
from exactum.kafka.requests import UNSETTLED, BrokerRequests
from exactum.kafka.transaction import NAME, KafkaTransaction
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
