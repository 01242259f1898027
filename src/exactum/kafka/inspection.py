"""What an operator sees of Kafka's transactions: of one sink of one query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from exactum.errors import CheckpointRefused, OutcomeUnknown, SettingRefused
from exactum.kafka.evidence import evidence_of
from exactum.kafka.outcome import TransactionDescription
from exactum.kafka.participant import NEVER_TIMES_OUT_MS, KafkaParticipant
from exactum.kafka.producer_pool import ProducerPlan
from exactum.kafka.readback import outcomes_of
from exactum.kafka.requests import BrokerRequests
from exactum.kafka.transaction import KafkaTransaction
from exactum.protocol.inspection import (
    Evidence,
    Inspector,
    Promise,
    TransactionState,
    TransactionView,
)
from exactum.protocol.model import PreparedTransaction, Sighting


class KafkaInspector(Inspector):
    """Of one sink of one query; see ``protocol.inspection.Inspector``."""

    def __init__(self, plan: ProducerPlan, admin: BrokerRequests) -> None:
        self._plan = plan
        self._admin = admin
        self._participant: KafkaParticipant | None = None

    @property
    def name(self) -> str:
        return self._plan.scope.participant

    def list_open(self) -> Sequence[TransactionView]:
        return self.describe(self.participant().list_open())

    def describe(
        self, transactions: Sequence[PreparedTransaction | Sighting]
    ) -> Sequence[TransactionView]:
        """By the coordinators, and by the markers in the log where these have moved on."""
        of = {t.identity: KafkaTransaction.of(t) for t in transactions}
        found = self._admin.describe_transactions(t.transactional_id for t in of.values())
        try:
            outcomes = outcomes_of(self._admin, of)
        except OutcomeUnknown:
            outcomes = dict.fromkeys(of, TransactionState.UNKNOWN)
        return [
            self._view(t, found[t.transactional_id], outcomes[identity])
            for identity, t in of.items()
        ]

    def evidence(
        self, promises: Sequence[Promise], onwards: Callable[[], Sequence[Promise]]
    ) -> Sequence[Evidence]:
        first, last = promises[0].batch_id, promises[-1].batch_id
        return evidence_of(self.name, self._admin, onwards, first, last)

    def participant(self) -> KafkaParticipant:
        if self._participant is None:
            self._participant = KafkaParticipant(self._plan, self._admin, self.cluster_id())
        return self._participant

    def cluster_id(self) -> str:
        """Of the cluster that answers."""
        return self._admin.cluster_id()

    def refuse_other(self, trace: Mapping[str, str]) -> None:
        """See the port."""
        if (recorded := trace.get("kafka")) is None:
            raise SettingRefused(
                "SINKS_OPTION",
                f"Sink {self.name!r} is given as one of Kafka, and in the last run it was another "
                "kind of sink. Nothing was changed. Give the sink by --sinks as the query had it.",
            )
        found = self.cluster_id()
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

    def _view(
        self,
        transaction: KafkaTransaction,
        found: TransactionDescription | None,
        outcome: TransactionState,
    ) -> TransactionView:
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
            if not transaction.partitions:  # seen, and not recorded
                details += [f"in {topic}-{index}" for topic, index in sorted(found.partitions)]
        else:
            details.append(
                f"the id has gone on to producer {found.producer_id}, epoch {found.producer_epoch}"
            )
        at_hand = found if same and outcome is TransactionState.OPEN else None
        times_out = at_hand is not None and at_hand.timeout_ms != NEVER_TIMES_OUT_MS
        return TransactionView(
            self.name,
            transaction.identity,
            self._plan.scope.query_id,
            self._plan.scope.incarnation_of(transaction.transactional_id),
            outcome,
            None if at_hand is None else at_hand.start_time_ms,
            at_hand.timeout_ms if at_hand is not None and times_out else None,
            details=tuple(details),
        )
