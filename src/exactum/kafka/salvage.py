"""Salvage: records that were decided, and whose transactions the broker has aborted since (a
timeout), are read back from the log and sent again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

from exactum.errors import HeuristicOutcome, SettingRefused, Unavailable
from exactum.kafka.failure import DENIALS
from exactum.kafka.producer.delivery_errors import DeliveryError
from exactum.kafka.producer.messages import HEADERS, produce
from exactum.kafka.producer.producer import Producer
from exactum.kafka.producer.producer_pool import ProducerPlan, initialised
from exactum.kafka.requests.broker_requests import BrokerRequests
from exactum.kafka.transaction import KafkaTransaction, Partition
from exactum.kafka.transactional_id import SALVAGE_SLOT
from exactum.kafka.transactions.readback import LoggedRecord, LogReader
from exactum.kafka.writer import ABORT_TIMEOUT_MS, DELIVERY_TIMEOUT_MS, transaction_failure
from exactum.protocol.model import CommitPermit, PreparedTransaction

SHOWN_MAX = 20


def sent_again(
    plan: ProducerPlan,
    requests: BrokerRequests,
    permit: CommitPermit,
    expired: Sequence[PreparedTransaction],
) -> tuple[KafkaTransaction, int]:
    """One new transaction, which is open, with all records of the expired ones, in the same
    partitions and the same order; and how many they are.

    Raises:
        HeuristicOutcome: the log no longer has all of them.
        SettingRefused: the user may not write any more.
        Unavailable: the broker does not take them.
    """
    transactional_id = plan.scope.transactional_id(
        plan.incarnation, secrets.token_hex(8), SALVAGE_SLOT
    )
    producer = initialised(plan, transactional_id)
    try:
        rows = _copied(plan.scope.participant, requests, permit, expired, producer)
        identity = producer.identity
    except DeliveryError as error:
        cause = transaction_failure(error, producer)
        with suppress(DeliveryError):  # what stays open is swept at the next start
            producer.abort_transaction(ABORT_TIMEOUT_MS)
        if cause.failure in DENIALS:
            raise SettingRefused(
                "KAFKA_ACCESS",
                f"{permit.record.epoch}: salvage was not allowed to write: {cause}. The user "
                "needs WRITE on the topic (docs/kafka.md lists the ACLs). Grant it and start "
                "again.",
            ) from error
        raise Unavailable(
            f"{permit.record.epoch}: salvage could not write: {cause}. Start again."
        ) from error
    finally:
        producer.destroy()
    return KafkaTransaction(transactional_id, *identity), rows


def _copied(
    sink: str,
    requests: BrokerRequests,
    permit: CommitPermit,
    expired: Sequence[PreparedTransaction],
    producer: Producer,
) -> int:
    producer.begin_transaction()
    missing: list[str] = []
    rows = 0
    transactions = [KafkaTransaction.of(p) for p in expired]
    logs = LogReader(requests, {partition for t in transactions for partition, _ in t.partitions})
    for transaction in transactions:
        for partition, (first_offset, expected) in transaction.partitions:

            def send(records: Sequence[LoggedRecord], partition: Partition = partition) -> None:
                produce(
                    producer,
                    _frame(records, partition[1]),
                    partition[0],
                    timeout_ms=DELIVERY_TIMEOUT_MS,
                    timestamps_ms=np.array([r.timestamp_ms for r in records], np.int64),
                )

            found = logs.read_back(partition, first_offset, transaction.producer, send)
            rows += found.count
            if found.count != expected:
                missing.append(
                    f"{partition[0]}-{partition[1]}: {expected - found.count} of {expected} "
                    f"records from offset {first_offset} ({found.end})"
                )
    if missing:
        producer.abort_transaction(ABORT_TIMEOUT_MS)
        raise HeuristicOutcome(
            "KAFKA_RECORDS_GONE",
            f"{permit.record.epoch} is decided, but the broker aborted its transactions "
            "(timeout) and the log no longer holds all of their records. Missing from sink "
            f"{sink!r}: {shown(missing)}. Nothing else of this epoch was made visible by "
            "this. docs/guarantees.md says how to go on.",
        )
    producer.flush(DELIVERY_TIMEOUT_MS)
    return rows


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
