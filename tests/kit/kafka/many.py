"""Thousands of open transactions with a record each, as an epoch of as many tasks leaves them: by
plain requests, for a librdkafka producer takes 20 to 60 ms to begin.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.producer import AddPartitionsToTxnRequest, InitProducerIdRequest, ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from exactum.kafka.transaction import KafkaScope, KafkaTransaction
from exactum.protocol.model import PreparedTransaction
from tests.kit.kafka.transactions import OpenedSink

LANES = 16
AGAIN = {15, 16, 51, 14}
"""Coordinator not available, not its coordinator, concurrent transactions, coordinator loading."""


def open_many(
    servers: str, sink: OpenedSink, topic: str, partitions: int, count: int
) -> list[PreparedTransaction]:
    """``count`` prepared transactions of ``sink``'s run, on a broker of one node; the nth holds
    the record b"n".
    """
    scope = KafkaScope(sink.run.query_id, sink.participant.name)
    worker = secrets.token_hex(8)
    names = [scope.transactional_id(sink.run.incarnation, worker, n) for n in range(count)]
    admin = KafkaAdminClient(bootstrap_servers=servers, max_in_flight_requests_per_connection=1_000)
    try:
        manager: KafkaConnectionManager = admin._manager
        prepared: dict[int, PreparedTransaction] = {}

        async def one(number: int) -> None:
            transaction = await _opened(
                manager, names[number], (topic, number % partitions), b"%d" % number
            )
            prepared[number] = transaction.prepared(sink.participant.name, 1)

        in_lanes(manager, one, range(count))
        return [prepared[number] for number in range(count)]
    finally:
        admin.close()


async def _opened(
    manager: KafkaConnectionManager, name: str, partition: tuple[str, int], value: bytes
) -> KafkaTransaction:
    topic, index = partition
    begun = await _answered(
        manager,
        lambda: init_request(name, 600_000),
        lambda answer: answer.error_code,
    )
    producer = begun.producer_id, begun.producer_epoch
    added = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    await _answered(
        manager,
        lambda: AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[added(name=topic, partitions=[index])],
            max_version=3,
        ),
        lambda answer: (
            answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        ),
    )
    await _answered(
        manager,
        lambda: produce_request(name, producer, partition, 0, value),
        produce_error,
    )
    return KafkaTransaction(name, *producer)


def init_request(name: str, timeout_ms: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
        max_version=4,
    )


def produce_error(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def produce_request(
    name: str, producer: tuple[int, int], partition: tuple[str, int], sequence: int, value: bytes
) -> ProduceRequest:
    """One record of an open transaction."""
    batch = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=True,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        batch_size=1_000_000,
    )
    batch.append(0, timestamp=None, key=None, value=value, headers=[])
    data = ProduceRequest.TopicProduceData
    cell = data.PartitionProduceData
    return ProduceRequest(
        transactional_id=name,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            data(
                name=partition[0],
                partition_data=[cell(index=partition[1], records=bytes(batch.build()))],
            ),
        ],
        max_version=11,
    )


async def _answered(
    manager: Any, request: Callable[[], Any], error_of: Callable[[Any], int]
) -> Any:
    (node,) = manager.cluster.brokers()
    while True:
        answer = await manager.send(request(), node.node_id)
        error = error_of(answer)
        if error == 0:
            return answer
        assert error in AGAIN, f"Kafka error {error}"
        await manager._net.sleep(0.01)


def in_lanes(manager: Any, one: Callable[[int], Awaitable[None]], numbers: Sequence[int]) -> None:
    """Do it for all of ``numbers``, ``LANES`` at a time."""
    waiting = deque(numbers)
    failed: list[BaseException] = []
    ended = threading.Semaphore(0)

    async def lane() -> None:
        try:
            while waiting and not failed:
                await one(waiting.popleft())
        except BaseException as error:
            failed.append(error)
        finally:
            ended.release()

    for _ in range(LANES):
        manager.call_soon(lane)
    for _ in range(LANES):
        ended.acquire()
    if failed:
        raise failed[0]
