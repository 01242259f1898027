"""A hanging transaction, made on a real broker: records of a transaction in a partition that its
coordinator was never told of.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer.produce import ProduceRequest
from kafka.protocol.producer.transaction import InitProducerIdRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from kafka import KafkaAdminClient
from tests.kit.waiting import WAIT_MAX_S

VERIFICATION = "transaction.partition.verification.enable"
ASKS_MAX = 600
"""At 20 a second."""


@contextmanager
def unverified(servers: str) -> Iterator[None]:
    """Meanwhile leaders take transactional records without asking the coordinator (as Kafka before
    3.6 did).
    """
    admin = AdminClient({"bootstrap.servers": servers})
    brokers = [str(node) for node in admin.list_topics(timeout=WAIT_MAX_S).brokers]

    def set_to(value: str) -> None:
        entry = ConfigEntry(VERIFICATION, value, incremental_operation=AlterConfigOpType.SET)
        nodes = [
            ConfigResource(ResourceType.BROKER, b, incremental_configs=[entry]) for b in brokers
        ]
        for future in admin.incremental_alter_configs(nodes).values():
            future.result(timeout=WAIT_MAX_S)

    set_to("false")
    try:
        yield
    finally:
        set_to("true")


def hang(servers: str, transactional_id: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """Write one transactional record without AddPartitionsToTxn; returns (producer id, epoch)."""
    client = KafkaAdminClient(bootstrap_servers=servers)
    try:
        manager = client._manager

        def send(request: Any) -> Any:
            return manager.run(lambda: manager.send(request, None))

        # A broker that never saw a transaction makes its log of them when it is asked for this.
        send(FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id], min_version=4))
        for _ in range(ASKS_MAX):
            made = send(
                InitProducerIdRequest(
                    transactional_id=transactional_id,
                    transaction_timeout_ms=60_000,
                    producer_id=-1,
                    producer_epoch=-1,
                    max_version=4,
                )
            )
            if made.error_code == 0:
                break
            time.sleep(0.05)
        assert made.error_code == 0, made
        producer = (int(made.producer_id), int(made.producer_epoch))
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=1,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=0,
            batch_size=1 << 20,
        )
        builder.append(0, timestamp=int(time.time() * 1000), key=b"k", value=b"lost", headers=[])
        records = bytes(builder.build())
        cell = ProduceRequest.TopicProduceData.PartitionProduceData
        for _ in range(ASKS_MAX):
            answer = send(
                ProduceRequest(
                    transactional_id=transactional_id,
                    acks=-1,
                    timeout_ms=10_000,
                    topic_data=[
                        ProduceRequest.TopicProduceData(
                            name=topic, partition_data=[cell(index=partition, records=records)]
                        )
                    ],
                    max_version=9,
                )
            )
            error = answer.responses[0].partition_responses[0].error_code
            if error == 0:
                return producer
            time.sleep(0.05)
        raise AssertionError(f"the broker took no record of a transaction: {answer}")
    finally:
        client.close()
