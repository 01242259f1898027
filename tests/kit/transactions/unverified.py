"""Brokers that take transactional records without asking the coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.kit.waiting import WAIT_MAX_S

VERIFICATION = "transaction.partition.verification.enable"


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
