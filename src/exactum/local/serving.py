"""Whether a node of a local Kafka serves: what it answers, and whether leaders are elected."""

from __future__ import annotations

import socket
from collections.abc import Set
from typing import Any

from exactum.local.admin import admin_client
from exactum.local.settings import HOST

REQUEST_TIMEOUT_S = 5.0


def has_leaders(topic: Any, partitions: int) -> bool:
    """Whether a node's metadata of the topic (confluent_kafka's) has as many partitions, each with
    a leader.
    """
    return len(topic.partitions) == partitions and all(
        each.leader > 0 for each in topic.partitions.values()
    )


def not_serving(ports: Any, expected: Set[int], nodes: int) -> str | None:
    """Why the node with these ports does not serve yet, or None if it does. ``expected``: the
    nodes that run, of ``nodes``.
    """
    from confluent_kafka import KafkaException

    for port in (ports.clients, ports.internal):
        with socket.socket() as probe:
            probe.settimeout(REQUEST_TIMEOUT_S)
            if probe.connect_ex((HOST, port)) != 0:
                return f"port {port} is closed"
    try:
        seen = admin_client([f"{HOST}:{ports.internal}"]).list_topics(timeout=REQUEST_TIMEOUT_S)
    except KafkaException as error:
        return str(error)
    if not expected <= set(seen.brokers):
        return f"it lists the nodes {sorted(seen.brokers)} of {sorted(expected)}"
    if seen.controller_id <= 0:
        return "no controller is elected"
    if len(expected) < nodes:
        return None
    leaderless = [
        f"{topic.topic}-{partition.id}"
        for topic in seen.topics.values()
        for partition in topic.partitions.values()
        if partition.leader <= 0
    ]
    return f"partitions without a leader: {', '.join(leaderless)}" if leaderless else None
