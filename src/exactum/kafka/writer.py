"""The executor half of the Kafka sink: one task writes its rows into one transaction of its own.

At ``prepare`` every row is acknowledged by all in-sync replicas and the transaction is open: any process
that knows (transactional id, producer id, producer epoch) can now end it. A partition without rows opens
nothing: an empty transaction cannot be committed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from exactum.errors import EpochAborted, SettingRefused
from exactum.kafka.messages import produce, without_too_large
from exactum.kafka.producer import DeliveryError, Producer
from exactum.kafka.producer_pool import OwnedProducer, ProducerPlan, ProducerPool, pool_of
from exactum.kafka.transaction import KafkaTransaction
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import Guarantee, Rejection, TaskName, WriteOrder, Writer

log = logging.getLogger("exactum.kafka")

RECORD_BYTES_MAX = 1_000_000
"""librdkafka's default of message.max.bytes."""
ABORT_TIMEOUT_MS = 10_000
DELIVERY_TIMEOUT_MS = 300_000
"""Longest wait for room in the queue and for the last acknowledgements; librdkafka's own default."""


@dataclass(frozen=True)
class KafkaWriterFactory:
    """Goes to the executors; opens a writer there."""

    plan: ProducerPlan
    topic: str | None

    @property
    def record_bytes_max(self) -> int:
        """The largest record that librdkafka sends: key and value, before compression."""
        return int(dict(self.plan.settings).get("message.max.bytes", RECORD_BYTES_MAX))

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        pool = pool_of(self.plan)
        if order.run.guarantee is Guarantee.EXACTLY_ONCE:
            return TransactionalWriter(self, pool, order, task)
        return PlainWriter(self, pool, task)


class TransactionalWriter:
    """Exactly once: rows go into an open transaction that only the driver's decision ends."""

    def __init__(self, factory: KafkaWriterFactory, pool: ProducerPool, order: WriteOrder, task: TaskName) -> None:
        self._factory = factory
        self._pool = pool
        self._order = order
        self._task = task
        self._owned: OwnedProducer | None = None
        self._rows = 0

    def write(self, batch: Any) -> Rejection | None:
        batch, rejection = without_too_large(batch, self._factory.record_bytes_max)
        if batch.num_rows == 0:
            return rejection
        try:
            producer = self._begun()
            produce(producer, batch, self._factory.topic, timeout_ms=DELIVERY_TIMEOUT_MS)
        except DeliveryError as error:
            raise write_failure(self._cause(error), self._task, self._factory) from error
        self._rows += batch.num_rows
        return rejection

    def prepare(self) -> PreparedTransaction | None:
        if self._owned is None:
            self._pool.prepare_ahead()
            return None
        owned, producer = self._owned, self._owned.producer
        try:
            producer.flush(DELIVERY_TIMEOUT_MS)
        except DeliveryError as error:
            raise write_failure(self._cause(error), self._task, self._factory) from error
        transaction = KafkaTransaction(owned.transactional_id, *producer.identity)
        self._owned = None
        self._pool.let_go(owned)
        self._pool.prepare_ahead()
        return transaction.prepared(self._factory.plan.scope.participant, self._rows)

    def abort(self) -> None:
        if self._owned is None:
            return
        owned, self._owned = self._owned, None
        try:
            owned.producer.abort_transaction(ABORT_TIMEOUT_MS)
        except DeliveryError as error:
            # The driver sweeps what is still open under this query's name.
            log.warning("task %s could not abort its own transaction: %s", self._task, error)
        self._pool.let_go(owned)

    def _cause(self, error: DeliveryError) -> DeliveryError:
        return error if self._owned is None else transaction_failure(error, self._owned.producer)

    def _begun(self) -> Producer:
        if self._owned is None:
            owned = self._pool.take(self._order.sequence)
            owned.producer.begin_transaction()
            self._owned = owned
            self._pool.prepare_ahead()
        return self._pool.informed(self._owned.producer)


class PlainWriter:
    """At least once and at most once: an idempotent producer, kept by the process."""

    def __init__(self, factory: KafkaWriterFactory, pool: ProducerPool, task: TaskName) -> None:
        self._factory = factory
        self._pool = pool
        self._task = task

    def write(self, batch: Any) -> Rejection | None:
        batch, rejection = without_too_large(batch, self._factory.record_bytes_max)
        try:
            producer = self._pool.informed(self._pool.plain())
            produce(producer, batch, self._factory.topic, timeout_ms=DELIVERY_TIMEOUT_MS)
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
        return None

    def abort(self) -> None:
        self._pool.forget_plain()


def transaction_failure(error: DeliveryError, producer: Producer) -> DeliveryError:
    """Why librdkafka dropped records of a begun transaction, where ``error`` says only that it did.

    When the broker does not add a partition to the transaction (rights), the records are purged. The reason is
    told by any call that the failed state excludes (rdkafka_txnmgr.c, rd_kafka_txn_require_states0): beginning a
    second transaction is one that can never succeed.
    """
    if not error.name.startswith("_PURGE") and error.name != "_STATE":
        return error
    try:
        producer.begin_transaction()
    except DeliveryError as cause:
        if cause.name != "_STATE":
            return DeliveryError(cause.name, f"{str(cause).removeprefix(f'{cause.name}: ')}; so {error}")
    return error


def write_failure(error: DeliveryError, task: TaskName, factory: KafkaWriterFactory) -> EpochAborted | SettingRefused:
    """What a failed record means: nothing of the task becomes visible."""
    where = f"task {task.partition_id} (attempt {task.attempt_number}) of sink {factory.plan.scope.participant!r}"
    if error.name == "MSG_SIZE_TOO_LARGE":
        return SettingRefused(
            f"{where}: a record is larger than the broker takes: {error}. Raise max.message.bytes of the topic "
            "(and message.max.bytes in the sink's producer settings, if it is set), or make the record smaller."
        )
    if "AUTHORIZATION" in error.name:
        return SettingRefused(
            f"{where}: the broker refused the records: {error}. The user needs WRITE on the topic "
            "(docs/kafka.md lists the ACLs)."
        )
    if error.name in ("_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"):
        return SettingRefused(
            f"{where}: {error}. The topic or the partition does not exist; create it, or correct the "
            "columns 'topic' and 'partition'."
        )
    return EpochAborted(f"{where}: {error}. The attempt is void; start the query again.")
