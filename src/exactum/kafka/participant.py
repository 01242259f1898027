"""The driver half of the Kafka sink: verifies, commits, aborts, settles and salvages transactions.

All requests go out in batches and to all coordinators at once. It holds no state of an epoch, but
what it verified last, and when: that spares requests when it lists what is open and when it
commits. Another process, which has verified nothing, asks the brokers.

Salvage: records that were decided, and whose transactions the broker has aborted since (a timeout),
are read back from the log and sent again.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from exactum.errors import (
    EpochAborted,
    ExactumError,
    HeuristicOutcome,
    OutcomeUnknown,
    SettingRefused,
    Unavailable,
)
from exactum.kafka.failure import DeliveryError, KafkaFailure, access_refused, failure_of
from exactum.kafka.log_requests import LogIdentity, ProducerState
from exactum.kafka.messages import HEADERS, produce
from exactum.kafka.outcome import TransactionDescription, from_description, from_marker
from exactum.kafka.producer import Producer
from exactum.kafka.producer_pool import ProducerPlan, initialised
from exactum.kafka.readback import NO_LOG, LoggedRecord, LogReader, outcomes_of
from exactum.kafka.requests import COMMITTED, ONGOING, BrokerRequests
from exactum.kafka.routing import error_name
from exactum.kafka.settings import number
from exactum.kafka.topic import CONFIGS, facts_of, narrower
from exactum.kafka.transaction import SALVAGE_SLOT, KafkaTransaction, Partition
from exactum.kafka.writer import DELIVERY_TIMEOUT_MS, transaction_failure
from exactum.protocol.inspection import TransactionState
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Incarnation,
    PreparedTransaction,
    Sighting,
)
from exactum.protocol.participant import Participant

NEVER_TIMES_OUT_MS = 2_147_483_647
"""Since Kafka 4.1 a transaction with this timeout is never aborted (TransactionMetadata.java,
KIP-939).
"""
SETTLE_ROUNDS_MAX = 20
"""How often a commit is asked for. The requests themselves pause where an answer may pass."""
FRESH_S = 5.0
"""How long after they were verified a commit need not look again whether all records are there."""
MARGIN_MAX_MS = 30_000
"""What a transaction must have left to be decided: a tenth of its timeout, at most this."""
LOOKS_MAX = 20
"""How often a batch that was acknowledged is looked for; each time a broker waits 50 ms for it. A
leader of late may not know yet that the others have it.
"""
FENCE_ROUNDS_MAX = 60
FENCE_PAUSE_S = 0.05


class KafkaParticipant(Participant):
    """Participant of one Kafka sink in one run of a query."""

    def __init__(
        self,
        plan: ProducerPlan,
        requests: BrokerRequests,
        cluster_id: str,
        logs: Mapping[Partition, LogIdentity] = MappingProxyType({}),
    ) -> None:
        """``logs``: those that are known, before a task has written."""
        self._plan = plan
        self._requests = requests
        self._cluster_id = cluster_id
        self._verified: Mapping[str, Sighting] = {}
        """What was found open and whole last, by transactional id."""
        self._verified_s = -math.inf
        self._is_listing_due = False
        """Whether nothing was listed since: a task that is late may have begun anew by the next."""
        self._none_open_s = time.monotonic()
        """When none of the next epoch's transactions had begun, by the monotonic clock."""
        self._logs = dict(logs)
        """Which they were when they were asked for last; of others it is not known."""

    @property
    def name(self) -> str:
        return self._plan.scope.participant

    def close(self) -> None:
        self._requests.close()

    def own(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        """See the port."""
        return [p for p in prepared if KafkaTransaction.is_one(p)]

    # ---- what is open ------------------------------------------------------------------------

    def list_open(self) -> Sequence[Sighting]:
        self._none_open_s = time.monotonic()
        scope = self._plan.scope
        mine = {
            name: incarnation
            for name in self._requests.list_transactions(ONGOING, scope.broker_pattern())
            if (incarnation := scope.incarnation_of(name)) is not None
        }
        verified = self._verified if self._is_listing_due else {}
        self._is_listing_due = False
        seen = [verified[name] for name in mine if name in verified]
        unknown = sorted(mine.keys() - verified.keys())
        for name, found in self._requests.describe_transactions(unknown).items():
            if found is not None and found.state == "Ongoing":
                seen.append(self._sighting(name, (found.producer_id, found.producer_epoch)))
        return seen

    def list_committed(
        self, is_asked: Callable[[Incarnation], bool], recent: Sequence[PreparedTransaction]
    ) -> Sequence[Sighting]:
        """By the state that its coordinator keeps of an id: of its last transaction, until it is
        initialised again.

        Those that ``recent`` names are asked for always; others only of a broker that can list ids
        by a pattern (Kafka 4.1, KIP-1152): an older one would list everybody's.
        """
        scope = self._plan.scope
        named = {KafkaTransaction.of(p).transactional_id for p in self.own(recent)}
        listed = (
            self._requests.list_transactions(COMMITTED, scope.broker_pattern())
            if self._requests.knows_patterns()
            else []
        )
        # A fork's records may name ids of the query that it was made of: those are not of this
        # scope.
        mine = {n for n in named if scope.incarnation_of(n) is not None}
        mine |= {
            name
            for name in listed
            if (by := scope.incarnation_of(name)) is not None
            and is_asked(by)
            and scope.is_of_task(name)
        }
        return [
            self._sighting(name, (found.producer_id, found.producer_epoch))
            for name, found in self._requests.describe_transactions(mine).items()
            if found is not None and found.state in COMMITTED
        ]

    def abort(self, transactions: Sequence[Sighting]) -> None:
        """Abort what is still open as it was seen, and fence its producer. Idempotent.

        By InitProducerId, which raises the producer's epoch with the abort. EndTxn would leave it:
        the task may be at work, and a broker that does not ask the coordinator (before Kafka 3.6)
        takes its further records into a transaction that nobody would ever end (docs/adr/0004).
        What is settled or has moved on is left alone.

        Raises:
            Unavailable: the broker does not abort them.
        """
        producers = {t.transactional_id: t.producer for t in map(KafkaTransaction.of, transactions)}
        answers: dict[str, int] = {}
        for turn in range(FENCE_ROUNDS_MAX):
            found = self._requests.describe_transactions(producers)
            producers = {
                n: p
                for n, p in producers.items()
                if from_description(found[n], *p) is TransactionState.OPEN
            }
            if not producers:
                return
            time.sleep(FENCE_PAUSE_S * min(turn, 10))
            answers = self._requests.fence_producers(producers)
            _check_allowed(answers)
        raise Unavailable(
            f"The broker does not abort {len(producers)} transactions of sink {self.name!r} that "
            f"nobody needs (last answers: {_names(answers)}; one is {next(iter(producers))!r}). "
            "Start the query again."
        )

    # ---- verify ------------------------------------------------------------------------------

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        """Ask the coordinators for each transaction and the partition leaders for what they hold of
        it: the sum must be the rows that the task sent.
        """
        transactions = [KafkaTransaction.of(p) for p in prepared]
        found = self._requests.describe_transactions(t.transactional_id for t in transactions)
        for transaction in transactions:
            self._check_open(transaction, found[transaction.transactional_id])
        partitions = {p for d in found.values() if d is not None for p in d.partitions}
        logs = self._requests.identities(partitions)
        leaders = self._requests.describe_producers(
            partitions, of={t.producer_id for t in transactions}
        )
        checked = [
            self._with_partitions(p, t, found[t.transactional_id], leaders)
            for p, t in zip(prepared, transactions, strict=True)
        ]
        if changed := {p for p, log in logs.items() if self._logs.get(p) != log}:
            for transaction in map(KafkaTransaction.of, checked):
                for partition, (first_offset, _) in transaction.partitions:
                    if partition in changed:
                        self._check_begin(transaction, partition, first_offset)
            self._logs |= logs
        self._verified = {
            t.transactional_id: self._sighting(t.transactional_id, t.producer) for t in transactions
        }
        self._verified_s = time.monotonic()
        self._is_listing_due = True
        return checked

    def _check_open(
        self, transaction: KafkaTransaction, found: TransactionDescription | None
    ) -> None:
        name = transaction.transactional_id
        if found is None or (
            (found.producer_id, found.producer_epoch) != transaction.producer
            and from_marker(None, found, *transaction.producer) is TransactionState.UNKNOWN
        ):
            now = "is unknown to the broker" if found is None else f"now belongs to {_who(found)}"
            raise EpochAborted(
                f"The transactional id {name!r} of sink {self.name!r} {now}, instead of producer "
                f"{transaction.producer_id} epoch {transaction.producer_epoch}. Something else "
                "initialised it: give this query a transactional_id_prefix of its own. Nothing "
                "was committed."
            )
        if found.state != "Ongoing":
            raise EpochAborted(
                f"The transaction {name!r} of sink {self.name!r} is in state {found.state} before "
                f"it was decided (timeout {found.timeout_ms} ms). If it timed out, raise "
                "transaction_timeout_ms or make the batches smaller (maxOffsetsPerTrigger). "
                "Nothing was committed."
            )
        left_ms = found.left_ms(time.time() * 1000, (time.monotonic() - self._none_open_s) * 1000)
        margin_ms = min(MARGIN_MAX_MS, found.timeout_ms // 10)
        if found.timeout_ms != NEVER_TIMES_OUT_MS and left_ms < margin_ms:
            raise EpochAborted(
                f"The transaction {name!r} of sink {self.name!r} has {max(0, left_ms):.0f} of "
                f"{found.timeout_ms} ms left, too little to be decided safely. Raise "
                "transaction_timeout_ms (and the broker's transaction.max.timeout.ms) or make the "
                "batches smaller (maxOffsetsPerTrigger)."
            )

    def _with_partitions(
        self,
        prepared: PreparedTransaction,
        transaction: KafkaTransaction,
        found: TransactionDescription | None,
        leaders: Mapping[Partition, Mapping[int, ProducerState]],
    ) -> PreparedTransaction:
        by_topic: dict[str, dict[str, tuple[int, int]]] = {}
        rows = 0
        for topic, index in sorted(found.partitions if found else ()):
            # None: added to the transaction, but no record went there; or its records there were
            # aborted, and the producer went on in a new transaction
            if (cell := _held(transaction, leaders[topic, index])) is not None:
                by_topic.setdefault(topic, {})[str(index)] = cell
                rows += cell[1]
        if rows != prepared.rows:
            raise EpochAborted(
                f"The brokers hold {rows} records of the transaction "
                f"{transaction.transactional_id!r}, and the task sent {prepared.rows}. Nothing was "
                "committed; start the query again."
            )
        payload = json.loads(prepared.payload)
        payload |= {"cluster_id": self._cluster_id, "partitions": by_topic}
        return replace(prepared, payload=json.dumps(payload))

    def _check_begin(
        self, transaction: KafkaTransaction, partition: Partition, first_offset: int
    ) -> None:
        """Of a log that may have lost records while the task wrote on: a leader that knows nothing
        of a producer takes its next batch whatever the sequence (ProducerAppendInfo.java,
        checkSequence), and then counts those before it. From there on it demands each.
        """
        looks = (self._requests.first_batch(partition, first_offset) for _ in range(LOOKS_MAX))
        begin = next((batch for batch in looks if batch is not None), None)
        if (
            begin is None
            or (begin.producer_id, begin.producer_epoch) != transaction.producer
            or begin.base_sequence != 0
        ):
            raise EpochAborted(
                f"{partition[0]}-{partition[1]} has lost the first records of transaction "
                f"{transaction.transactional_id!r} while sink {self.name!r} wrote it: the topic "
                "was made anew, or its leader came back without them. Nothing was committed; "
                "start the query again."
            )

    # ---- commit ------------------------------------------------------------------------------

    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        """See ``Participant``. By EndTxn; what the coordinator does not commit is looked up: its
        state there, and where that is forgotten the markers in the log.
        """
        pending = {p.identity: p for p in prepared}
        transactions = {p.identity: KafkaTransaction.of(p) for p in prepared}
        self._refuse_other_cluster(permit, transactions.values())
        verified = {s.identity for s in self._verified.values()}
        if time.monotonic() - self._verified_s > FRESH_S or not transactions.keys() <= verified:
            self._refuse_gone(permit, transactions.values())
        committed: list[PreparedTransaction] = []
        expired: list[PreparedTransaction] = []
        for _ in range(SETTLE_ROUNDS_MAX):
            ends = {transactions[i].transactional_id: transactions[i].producer for i in pending}
            answers = self._requests.commit_transactions(ends)
            for identity in [i for i in pending if not answers[transactions[i].transactional_id]]:
                committed.append(pending.pop(identity))
            if not pending:
                return CommitReport(tuple(committed), tuple(expired))
            left = {i: transactions[i] for i in pending}
            for identity, outcome in outcomes_of(self._requests, left).items():
                if outcome is TransactionState.COMMITTED:
                    committed.append(pending.pop(identity))
                elif outcome is TransactionState.ABORTED:
                    expired.append(pending.pop(identity))
                elif outcome is TransactionState.UNKNOWN:
                    raise self._undecidable(permit, transactions[identity], answers)
            if not pending:
                return CommitReport(tuple(committed), tuple(expired))
            _check_allowed(
                {t: answers[t] for t in (transactions[i].transactional_id for i in pending)}
            )
        raise OutcomeUnknown(
            f"{permit.record.epoch}: {len(pending)} transactions of sink {self.name!r} are open "
            f"and the broker does not commit them (last answers: {_names(answers)}). Start the "
            "query again."
        )

    def _refuse_gone(
        self, permit: CommitPermit, transactions: Collection[KafkaTransaction]
    ) -> None:
        """Of transactions that were verified long ago, or by an earlier start, and are open: Kafka
        would commit what is left.

        Raises:
            HeuristicOutcome: a partition's leader has other records of one than it acknowledged.
        """
        cells = {(t, p): cell for t in self._open_of(transactions) for p, cell in t.partitions}
        partitions = {p for _, p in cells}
        missing = self._requests.missing(partitions)
        leaders = self._requests.describe_producers(
            partitions - missing, of={t.producer_id for t, _ in cells}
        )
        gone = {
            (t, p): f"{p[0]}-{p[1]}: {cell[1]} records from offset {cell[0]}, and "
            + (NO_LOG if p in missing else "the log there holds others, or fewer of them")
            for (t, p), cell in cells.items()
            if p in missing or _held(t, leaders[p]) != cell
        }
        # What is ended by now proves nothing.
        still_open = self._open_of(dict.fromkeys(t for t, _ in gone))
        if texts := [text for (t, _), text in gone.items() if t in still_open]:
            raise HeuristicOutcome(
                "KAFKA_RECORDS_GONE",
                f"{permit.record.epoch} is decided, and records of it are gone from sink "
                f"{self.name!r}: {shown(texts)}. Since the decision the topic was deleted, "
                "perhaps made anew, or a replica without these records was elected leader "
                "(unclean.leader.election.enable). Nothing more of the epoch was made visible. "
                "docs/operations.md says how to go on.",
            )

    def _open_of(self, transactions: Collection[KafkaTransaction]) -> list[KafkaTransaction]:
        found = self._requests.describe_transactions(t.transactional_id for t in transactions)
        return [
            t
            for t in transactions
            if from_description(found[t.transactional_id], *t.producer) is TransactionState.OPEN
        ]

    def _undecidable(
        self, permit: CommitPermit, transaction: KafkaTransaction, answers: Mapping[str, int]
    ) -> HeuristicOutcome:
        where = ", ".join(
            f"{t}-{i}: {n} records from offset {o}" for (t, i), (o, n) in transaction.partitions
        )
        return HeuristicOutcome(
            "KAFKA_OUTCOME_UNKNOWN",
            f"{permit.record.epoch} is decided, and nobody can tell whether the transaction "
            f"{transaction.transactional_id!r} (producer {transaction.producer_id}, epoch "
            f"{transaction.producer_epoch}) of sink {self.name!r} was committed: the broker "
            f"answered {error_name(answers[transaction.transactional_id])!r}, its coordinator has "
            f"forgotten it and the log holds no marker ({where}). Look whether these records are "
            "visible to a read_committed reader; docs/operations.md says how to go on.",
        )

    def _refuse_other_cluster(self, permit: CommitPermit, transactions: Any) -> None:
        for t in transactions:
            if t.cluster_id and t.cluster_id != self._cluster_id:
                raise SettingRefused(
                    "SINK_MOVED",
                    f"{permit.record.epoch} is decided but not finished on the Kafka cluster "
                    f"{t.cluster_id}; sink {self.name!r} now points to cluster {self._cluster_id}. "
                    "Point it back and start once, then change it.",
                )

    # ---- salvage -----------------------------------------------------------------------------

    def salvage(
        self, permit: CommitPermit, expired: Sequence[PreparedTransaction]
    ) -> Sequence[PreparedTransaction]:
        """Read the aborted records back and send them again, to the same partitions and in the same
        order.

        One new transaction carries them all. Count and place are checked before anything is
        returned.
        """
        transactional_id = self._plan.scope.transactional_id(
            self._plan.incarnation, secrets.token_hex(8), SALVAGE_SLOT
        )
        producer = initialised(self._plan, transactional_id)
        transaction = KafkaTransaction(transactional_id, *producer.identity)
        try:
            rows = self._send_again(permit, expired, producer)
        except Exception:
            producer.destroy()
            with suppress(ExactumError):  # what stays open is swept at the next start
                self.abort([self._sighting(transactional_id, transaction.producer)])
            raise
        producer.destroy()
        return self.verify([transaction.prepared(self.name, rows)])

    def _send_again(
        self, permit: CommitPermit, expired: Sequence[PreparedTransaction], producer: Producer
    ) -> int:
        """How many records, all of them acknowledged.

        Raises:
            HeuristicOutcome: the log no longer has all of them.
            SettingRefused: the user may not write any more, or the topic takes them no more.
            Unavailable: the broker does not take them.
        """
        try:
            producer.begin_transaction()
            batch_bytes = number(self._plan.settings, "batch.size")
            missing, rows = _copied(self._requests, expired, producer, batch_bytes)
            if not missing:
                producer.flush(DELIVERY_TIMEOUT_MS)
        except DeliveryError as error:
            cause = transaction_failure(error, producer)
            what = f"{permit.record.epoch}: salvage could not write: {cause}"
            if cause.failure is KafkaFailure.DENIED:
                raise access_refused(what, "WRITE on the topic") from error
            if cause.failure in (KafkaFailure.RECORD, KafkaFailure.REFUSED):
                raise SettingRefused(
                    "KAFKA_REFUSED",
                    f"{what}. The topic has taken these records before. Set it so that it takes "
                    "them again (max.message.bytes, message.timestamp.before.max.ms, "
                    "cleanup.policy), and start again.",
                ) from error
            raise Unavailable(f"{what}. Start again.") from error
        if missing:
            raise HeuristicOutcome(
                "KAFKA_RECORDS_GONE",
                f"{permit.record.epoch} is decided, but the broker aborted its transactions "
                "(timeout) and the log no longer holds all of their records. Missing from sink "
                f"{self.name!r}: {shown(missing)}. Nothing else of this epoch was made visible by "
                "this. docs/operations.md says how to go on.",
            )
        return rows

    def _sighting(self, transactional_id: str, producer: tuple[int, int]) -> Sighting:
        incarnation = self._plan.scope.incarnation_of(transactional_id)
        transaction = KafkaTransaction(transactional_id, *producer)
        return Sighting(
            participant=self.name,
            identity=transaction.identity,
            incarnation=incarnation if incarnation is not None else self._plan.incarnation,
            payload=transaction.payload(),
        )


def _held(
    transaction: KafkaTransaction, leader: Mapping[int, ProducerState]
) -> tuple[int, int] | None:
    """(first offset, records) of an open transaction in one partition, as its leader says; None: it
    holds none. A new producer epoch numbers its records from 0 in each partition, so the last
    sequence says how many there are, in a log that has lost none (``_check_begin``).
    """
    state = leader.get(transaction.producer_id)
    if state is None or state.producer_epoch != transaction.producer_epoch:
        return None
    if state.last_sequence < 0 or state.transaction_start_offset < 0:
        return None
    return state.transaction_start_offset, state.last_sequence + 1


def _check_allowed(answers: Mapping[str, int]) -> None:
    """``answers``: EndTxn's error by transactional id, of transactions that are still open."""
    denied = [n for n, error in answers.items() if failure_of(error) is KafkaFailure.DENIED]
    if denied:
        raise access_refused(
            f"The broker does not let this user end the transaction {denied[0]!r}",
            "WRITE on the transactional id",
        )


def _names(answers: Mapping[str, int]) -> list[str]:
    return sorted({error_name(error) for error in answers.values()})


def _who(found: TransactionDescription) -> str:
    return f"producer {found.producer_id} epoch {found.producer_epoch} (state {found.state})"


# ---- salvage ---------------------------------------------------------------------------------


SHOWN_MAX = 20


def _copied(
    requests: BrokerRequests,
    expired: Sequence[PreparedTransaction],
    producer: Producer,
    batch_bytes: int,
) -> tuple[list[str], int]:
    """What is missing in the log, and how many records were enqueued. ``batch_bytes``: the largest
    batch that the producer makes by itself.
    """
    missing: list[str] = []
    rows = 0
    transactions = [KafkaTransaction.of(p) for p in expired]
    partitions = {partition for t in transactions for partition, _ in t.partitions}
    logs = LogReader(requests, partitions)
    topics = {topic for topic, _ in partitions - logs.missing}
    facts = {topic: facts_of(0, requests.configs("topic", topic, CONFIGS)) for topic in topics}
    narrow = narrower(facts, batch_bytes)
    for transaction in transactions:
        for partition, (first_offset, expected) in transaction.partitions:

            def send(records: Sequence[LoggedRecord], partition: Partition = partition) -> None:
                produce(
                    producer,
                    _frame(records, partition[1]),
                    partition[0],
                    timeout_ms=DELIVERY_TIMEOUT_MS,
                    narrow=narrow,
                    timestamps_ms=np.array([r.timestamp_ms for r in records], np.int64),
                )

            found = logs.read_back(partition, first_offset, transaction.producer, send)
            rows += found.count
            if found.count != expected:
                missing.append(
                    f"{partition[0]}-{partition[1]}: {expected - found.count} of {expected} "
                    f"records from offset {first_offset} ({found.end})"
                )
    return missing, rows


def _frame(records: Sequence[LoggedRecord], partition: int) -> pa.RecordBatch:
    """As a task's rows are."""
    return pa.record_batch(
        {
            "key": pa.array([r.key for r in records], pa.binary()),
            "value": pa.array([r.value for r in records], pa.binary()),
            "headers": pa.array([r.headers for r in records], HEADERS),
            "partition": pa.array([partition] * len(records), pa.int32()),
        }
    )


def shown(places: Sequence[str]) -> str:
    """The first of them, and how many there are besides."""
    more = [f"and {len(places) - SHOWN_MAX} more"] if len(places) > SHOWN_MAX else []
    return "; ".join([*places[:SHOWN_MAX], *more])
