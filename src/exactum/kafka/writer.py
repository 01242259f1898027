"""The executor half of the Kafka sink: one task writes its rows into one transaction of its own.

At ``prepare`` every row is acknowledged by all in-sync replicas and the transaction is open: any
process that knows (transactional id, producer id, producer epoch) can now end it. A partition
without rows opens nothing: an empty transaction cannot be committed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from exactum.errors import EpochAborted, RowsRefused, SettingRefused
from exactum.kafka.failure import DENIALS, KafkaFailure
from exactum.kafka.producer.delivery_errors import DeliveryError
from exactum.kafka.producer.messages import produce
from exactum.kafka.producer.process_pools import process_pools
from exactum.kafka.producer.producer import Producer
from exactum.kafka.producer.producer_pool import OwnedProducer, ProducerPlan
from exactum.kafka.settings.settings import compression, number
from exactum.kafka.takeable import RecordLimits, RecordRules
from exactum.kafka.topics.topic_facts import TopicBook, TopicFacts
from exactum.kafka.transaction import KafkaTransaction
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import Guarantee, Rejection, TaskName, WriteOrder, Writer

log = logging.getLogger("exactum.kafka")

PARTITIONS_AGE_MAX_S = 5.0
"""Before a row is refused for its partition, the topic's are asked for again, unless that was so
long ago.
"""
ABORT_TIMEOUT_MS = 10_000
DELIVERY_TIMEOUT_MS = 300_000
"""Longest wait for room in the queue and for the last acknowledgements; librdkafka's own
default.
"""


@dataclass(frozen=True)
class KafkaWriterFactory:
    """Goes to the executors; opens a writer there."""

    plan: ProducerPlan
    topic: str | None
    facts: TopicFacts
    """Of the topic, when the query started; of no meaning without one."""
    inputs: tuple[re.Pattern[str], ...] = ()
    """Names of topics that the query reads, to which rows that name their topic may not go."""

    def rules(self, book: TopicBook) -> RecordRules:
        """Which rows can be taken; ``book`` tells of topics that only they name."""
        limits = RecordLimits(
            number(self.plan.settings, "message.max.bytes"),
            number(self.plan.settings, "queue.buffering.max.kbytes") * 1024,
            *compression(self.plan.settings),
        )
        return RecordRules(
            limits,
            self.topic,
            self.facts,
            book.facts,
            partial(book.facts, known_age_max_s=PARTITIONS_AGE_MAX_S),
            self.inputs,
        )

    def narrow(self, batch: Any, book: TopicBook) -> Mapping[str, int]:
        """The largest batch of those of the rows' topics that take less than the producers put into
        one.
        """
        if self.topic is not None or batch.num_rows == 0:
            return {}  # the plan's settings have heeded it
        batch_bytes = number(self.plan.settings, "batch.size")
        if book.batch_bytes_least() >= batch_bytes:
            return {}
        facts = book.facts(batch.column("topic").unique().to_pylist())
        limits = {name: about.batch_bytes_max for name, about in facts.items()}
        return {
            name: limit
            for name, limit in limits.items()
            if limit is not None and limit < batch_bytes
        }

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        if order.run.guarantee is Guarantee.EXACTLY_ONCE:
            return TransactionalWriter(self, order, task)
        return PlainWriter(self, task)


class TransactionalWriter:
    """Exactly once: rows go into an open transaction that only the driver's decision ends."""

    def __init__(self, factory: KafkaWriterFactory, order: WriteOrder, task: TaskName) -> None:
        self._factory = factory
        self._pool = process_pools.pool_of(factory.plan, self)
        self._order = order
        self._task = task
        self._rules = factory.rules(self._pool.topics)
        self._owned: OwnedProducer | None = None
        self._rows = 0

    def write(self, batch: Any) -> Rejection | None:
        batch, rejection = self._rules.takeable(batch)
        if batch.num_rows == 0:
            return rejection
        narrow = self._factory.narrow(batch, self._pool.topics)
        try:
            producer = self._begun()
            produce(
                producer, batch, self._factory.topic, timeout_ms=DELIVERY_TIMEOUT_MS, narrow=narrow
            )
        except DeliveryError as error:
            raise write_failure(self._cause(error), self._task, self._factory) from error
        self._rows += batch.num_rows
        return rejection

    def prepare(self) -> PreparedTransaction | None:
        if self._owned is None:
            self._pool.initialise_ahead()
            self._pool.leave(self)
            return None
        owned, producer = self._owned, self._owned.producer
        try:
            producer.flush(DELIVERY_TIMEOUT_MS)
        except DeliveryError as error:
            raise write_failure(self._cause(error), self._task, self._factory) from error
        transaction = KafkaTransaction(owned.transactional_id, *producer.identity)
        self._owned = None
        # Destroyed, and not closed: that leaves the transaction open, for the driver to end.
        self._pool.let_go(owned)
        self._pool.initialise_ahead()
        self._pool.leave(self)
        return transaction.prepared(self._factory.plan.scope.participant, self._rows)

    def abort(self) -> None:
        if self._owned is None:
            self._pool.leave(self)
            return
        owned, self._owned = self._owned, None
        try:
            owned.producer.abort_transaction(ABORT_TIMEOUT_MS)
        except DeliveryError as error:
            # The driver sweeps what is still open under this query's name.
            log.warning("task %s could not abort its own transaction: %s", self._task, error)
        self._pool.let_go(owned)
        self._pool.leave(self)

    def _cause(self, error: DeliveryError) -> DeliveryError:
        return error if self._owned is None else transaction_failure(error, self._owned.producer)

    def _begun(self) -> Producer:
        if self._owned is None:
            owned = self._pool.take(self._order.sequence)
            owned.producer.begin_transaction()
            self._owned = owned
            self._pool.initialise_ahead()
        return self._pool.informed(self._owned.producer)


class PlainWriter:
    """At least once and at most once: an idempotent producer, kept by the process."""

    def __init__(self, factory: KafkaWriterFactory, task: TaskName) -> None:
        self._factory = factory
        self._pool = process_pools.pool_of(factory.plan, self)
        self._task = task
        self._rules = factory.rules(self._pool.topics)

    def write(self, batch: Any) -> Rejection | None:
        batch, rejection = self._rules.takeable(batch)
        narrow = self._factory.narrow(batch, self._pool.topics)
        try:
            producer = self._pool.informed(self._pool.plain())
            produce(
                producer, batch, self._factory.topic, timeout_ms=DELIVERY_TIMEOUT_MS, narrow=narrow
            )
        except DeliveryError as error:
            self._pool.forget_plain()
            raise write_failure(error, self._task, self._factory) from error
        return rejection

    def prepare(self) -> PreparedTransaction | None:
        try:
            self._pool.plain().flush(DELIVERY_TIMEOUT_MS)
        except DeliveryError as error:
            self._pool.forget_plain()
            raise write_failure(error, self._task, self._factory) from error
        self._pool.leave(self)
        return None

    def abort(self) -> None:
        self._pool.forget_plain()
        self._pool.leave(self)


def transaction_failure(error: DeliveryError, producer: Producer) -> DeliveryError:
    """Why librdkafka dropped records of a begun transaction, where ``error`` says only that it did.

    When the broker does not add a partition to the transaction (rights), the records are purged.
    The reason is told by any call that the failed state excludes (rdkafka_txnmgr.c,
    rd_kafka_txn_require_states0): beginning a second transaction is one that can never succeed.
    """
    if error.failure not in (KafkaFailure.PURGED, KafkaFailure.STATE):
        return error
    try:
        producer.begin_transaction()
    except DeliveryError as cause:
        if cause.failure is not KafkaFailure.STATE:
            return DeliveryError(
                cause.code, f"{str(cause).removeprefix(f'{cause.name}: ')}; so {error}"
            )
    return error


def write_failure(
    error: DeliveryError, task: TaskName, factory: KafkaWriterFactory
) -> EpochAborted | SettingRefused | RowsRefused:
    """What a failed record means: nothing of the task becomes visible."""
    where = (
        f"task {task.partition_id} (attempt {task.attempt_number}) of sink "
        f"{factory.plan.scope.participant!r}"
    )
    if error.failure is KafkaFailure.TOO_LARGE:
        return SettingRefused(
            f"{where}: a record is larger than the broker takes: {error}. The topic's "
            "max.message.bytes was lowered while the query ran, or the user may not read it "
            "(DESCRIBE_CONFIGS on the topic). Start the query again, with that right: then such "
            "rows are found before they are sent, and go to the dead letters."
        )
    if error.failure is KafkaFailure.RECORD:
        return RowsRefused(
            f"{where}: the broker refuses records for good: {error}. A compacted topic takes none "
            "without a key: its cleanup.policy was changed while the query ran, or the user may "
            "not read it (DESCRIBE_CONFIGS on the topic). Start the query again, with that right: "
            "then such rows are found before they are sent, and go to the dead letters. Nothing "
            "of the epoch is visible."
        )
    if error.failure in DENIALS:
        return SettingRefused(
            f"{where}: the broker refused the records: {error}. The user needs WRITE on the topic "
            "(docs/kafka.md lists the ACLs)."
        )
    if error.failure in (KafkaFailure.MISSING, KafkaFailure.UNFOUND):
        return SettingRefused(
            f"{where}: {error}. The topic or the partition does not exist; create it, or correct "
            "the columns 'topic' and 'partition'."
        )
    if error.failure in (KafkaFailure.REFUSED, KafkaFailure.TOPIC):
        return SettingRefused(
            f"{where}: the broker refuses the records for good: {error}. Correct the topic's "
            "settings or the sink's. Nothing of the epoch is visible."
        )
    return EpochAborted(f"{where}: {error}. The attempt is void; start the query again.")
