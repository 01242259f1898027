"""A hanging transaction, made on a real broker: records of a transaction in a partition that its
coordinator was never told of.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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

from kafka import KafkaAdminClient
from tests.kit.kafka.many import init_request, produce_error, produce_request
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

    def asked(request: Any, error_of: Callable[[Any], int]) -> Any:
        manager = client._manager
        for _ in range(ASKS_MAX):
            answer = manager.run(lambda: manager.send(request, None))
            if error_of(answer) == 0:
                return answer
            time.sleep(0.05)
        raise AssertionError(f"the broker does not take it: {answer}")

    try:
        # A broker that never saw a transaction makes its log of them when it is asked for this.
        keys = {"key_type": 1, "coordinator_keys": [transactional_id]}
        asked(FindCoordinatorRequest(**keys, min_version=4), lambda answer: 0)
        made = asked(init_request(transactional_id, 60_000), lambda answer: int(answer.error_code))
        producer = (int(made.producer_id), int(made.producer_epoch))
        lost = produce_request(transactional_id, producer, (topic, partition), 0, b"lost")
        asked(lost, produce_error)
        return producer
    finally:
        client.close()
