"""The executor half of the Kafka sink: one task writes its rows into one transaction of its own.

At ``prepare`` every row is acknowledged by all in-sync replicas and the transaction is open: any
process that knows (transactional id, producer id, producer epoch) can now end it. A partition
without rows opens nothing: an empty transaction cannot be committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from exactum.errors import EpochAborted, ExactumError, RowsRefused, SettingRefused, UnknownFailure
from exactum.kafka.failure import DeliveryError, KafkaFailure, access_refused
from exactum.kafka.messages import produce
from exactum.kafka.producer import Producer
from exactum.kafka.producer_pool import OwnedProducer, ProducerPlan, process_pools
from exactum.kafka.settings import number
from exactum.kafka.takeable import RecordRules
from exactum.kafka.topic import TopicFacts
from exactum.kafka.transaction import KafkaTransaction
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import Guarantee, Rejection, TaskName, WriteOrder, Writer

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

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        exact = order.run.guarantee is Guarantee.EXACTLY_ONCE
        return TransactionalWriter(self, order, task) if exact else PlainWriter(self, order, task)


class PlainWriter:
    """At least once and at most once: an idempotent producer, kept by the process."""

    def __init__(self, factory: KafkaWriterFactory, order: WriteOrder, task: TaskName) -> None:
        self._factory = factory
        self._order = order
        self._task = task
        self._pool = process_pools.pool_of(factory.plan, self)
        known = {} if factory.topic is None else {factory.topic: factory.facts}
        self._pool.topics.begin(order.sequence, known)
        settings = factory.plan.settings
        self._rules = RecordRules(
            factory.topic,
            self._pool.topics,
            record_bytes_max=number(settings, "message.max.bytes"),
            inputs=factory.inputs,
        )
        self._batch_bytes = number(settings, "batch.size")
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> Rejection | None:
        batch, rejection = self._rules.takeable(batch)
        if batch.num_rows:
            with self._understood():
                produce(
                    self._pool.informed(self._producer()),
                    batch,
                    self._factory.topic,
                    timeout_ms=DELIVERY_TIMEOUT_MS,
                    narrow=self._pool.topics.narrower(self._batch_bytes),
                )
            self._rows += batch.num_rows
        return rejection

    def prepare(self) -> PreparedTransaction | None:
        with self._understood():
            self._producer().flush(DELIVERY_TIMEOUT_MS)
        self._pool.leave(self)
        return None

    def abort(self) -> None:
        self._pool.forget_plain()
        self._pool.leave(self)

    def _producer(self) -> Producer:
        return self._pool.plain()

    def _cause(self, error: DeliveryError) -> DeliveryError:
        self._pool.forget_plain()
        return error

    @contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except DeliveryError as error:
            raise write_failure(self._cause(error), self._task, self._factory) from error


class TransactionalWriter(PlainWriter):
    """Exactly once: rows go into an open transaction that only the driver ends. A task that fails
    leaves its own as one that dies does: an abort by librdkafka would not fence late records of it
    (docs/adr/0004).
    """

    _owned: OwnedProducer | None = None

    def prepare(self) -> PreparedTransaction | None:
        owned, transaction = self._owned, None
        if owned is not None:
            with self._understood():
                owned.producer.flush(DELIVERY_TIMEOUT_MS)
            transaction = KafkaTransaction(owned.transactional_id, *owned.producer.identity)
            self._owned = None
            # Destroyed, and not closed: that leaves the transaction open, for the driver to end.
            self._pool.let_go(owned)
        self._pool.initialise_ahead()
        self._pool.leave(self)
        participant = self._factory.plan.scope.participant
        return None if transaction is None else transaction.prepared(participant, self._rows)

    def abort(self) -> None:
        owned, self._owned = self._owned, None
        if owned is not None:
            owned.producer.destroy()  # at once: nothing comes after the driver has listed it
            self._pool.let_go(owned)
        self._pool.leave(self)

    def _producer(self) -> Producer:
        if self._owned is None:
            owned = self._pool.take(self._order.sequence)
            owned.producer.begin_transaction()
            self._owned = owned
            self._pool.initialise_ahead()
        return self._owned.producer

    def _cause(self, error: DeliveryError) -> DeliveryError:
        return error if self._owned is None else transaction_failure(error, self._owned.producer)


def transaction_failure(error: DeliveryError, producer: Producer) -> DeliveryError:
    """Why librdkafka dropped records of a begun transaction, where ``error`` says only that it did.

    When the broker does not add a partition to the transaction (rights), the records are purged.
    The reason is told by any call that the failed state excludes (rdkafka_txnmgr.c,
    rd_kafka_txn_require_states0): beginning a second transaction is one that can never succeed.
    """
    if error.failure is not KafkaFailure.CONSEQUENCE:
        return error
    try:
        producer.begin_transaction()
    except DeliveryError as cause:
        if cause.failure is not KafkaFailure.CONSEQUENCE:
            return DeliveryError(
                cause.code, f"{str(cause).removeprefix(f'{cause.name}: ')}; so {error}"
            )
    return error


def write_failure(
    error: DeliveryError, task: TaskName, factory: KafkaWriterFactory
) -> ExactumError:
    """What a failed record means: nothing of the task becomes visible."""
    where = (
        f"task {task.partition_id} (attempt {task.attempt_number}) of sink "
        f"{factory.plan.scope.participant!r}: {error}"
    )
    match error.failure:
        case KafkaFailure.RECORD:
            return RowsRefused(
                "ROWS_REFUSED",
                f"{where}. Its topic takes no record that is larger than its max.message.bytes or, "
                "where it is compacted, has no key. That was changed meanwhile, or the user may "
                "not read it: grant DESCRIBE_CONFIGS and start again, then such rows go to the "
                "dead letters. Nothing of the epoch is visible.",
            )
        case KafkaFailure.DENIED:
            return access_refused(where, "WRITE on the topic")
        case KafkaFailure.MISSING | KafkaFailure.REFUSED:
            return SettingRefused(
                "KAFKA_REFUSED",
                f"{where}. The next attempt would be refused alike. Create the topic or the "
                "partition, or correct the topic's settings or the sink's. Nothing of the epoch "
                "is visible.",
            )
        case KafkaFailure.FENCED:
            return EpochAborted(
                f"{where}. Its transaction was ended meanwhile. If it was open for longer than "
                f"transaction_timeout_ms={factory.plan.transaction_timeout_ms}, raise that or make "
                "the batches smaller (maxOffsetsPerTrigger). Nothing of the epoch is visible."
            )
        case KafkaFailure.OTHER:
            return UnknownFailure(
                f"{where}. The attempt is void; start the query again. If it comes again at the "
                "same batch, ask those who run the brokers."
            )
        case _:
            return EpochAborted(f"{where}. The attempt is void; start the query again.")
