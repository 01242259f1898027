"""What a local Kafka is asked: its administration, with errors turned into exactum's, and whether
it serves.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from exactum.errors import LocalServerError
from exactum.local.broker import HOST, Ports

if TYPE_CHECKING:  # confluent-kafka is imported where it is used: importing this layer stays cheap
    from confluent_kafka.admin import AdminClient

CHANGE_TIMEOUT_S = 120.0
REQUEST_TIMEOUT_S = 5.0


def admin_client(servers: str) -> AdminClient:
    """Return a new client of the servers (``host:port``, comma-separated)."""
    from confluent_kafka.admin import AdminClient

    return AdminClient(
        {
            "bootstrap.servers": servers,
            "socket.timeout.ms": int(CHANGE_TIMEOUT_S * 1_000),
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,  # a node that is down is no news here
        }
    )


def listed_topics(admin: AdminClient, *name: str) -> dict[str, Any]:
    """Return the metadata of all topics or of one by name. Raises LocalServerError."""
    from confluent_kafka import KafkaException

    try:
        topics: dict[str, Any] = admin.list_topics(*name, timeout=CHANGE_TIMEOUT_S).topics
    except KafkaException as error:
        raise LocalServerError(f"the cluster did not list its topics: {error}") from error
    return topics


def settle(what: str, future: Any) -> None:
    """Wait until a change is made. Raises LocalServerError, which says `what` could not be done."""
    from concurrent.futures import TimeoutError as FutureTimeoutError

    from confluent_kafka import KafkaException

    try:
        future.result(CHANGE_TIMEOUT_S)
    except (KafkaException, FutureTimeoutError) as error:
        raise LocalServerError(f"could not {what}: {error or 'no answer'}") from error


def has_leaders(topic: Any, partitions: int) -> bool:
    """Whether a node's metadata of the topic (confluent_kafka's) has as many partitions, each with
    a leader.
    """
    return len(topic.partitions) == partitions and all(
        each.leader > 0 for each in topic.partitions.values()
    )


def not_serving(ports: Ports) -> str | None:
    """Why the node with these ports does not serve yet, or None if it does: it answers, and has a
    controller, and a leader for every partition. After a kill, leaders are elected a moment later.
    """
    from confluent_kafka import KafkaException

    for port in (ports.clients, ports.internal):
        with socket.socket() as probe:
            probe.settimeout(REQUEST_TIMEOUT_S)
            if probe.connect_ex((HOST, port)) != 0:
                return f"port {port} is closed"
    try:
        seen = admin_client(f"{HOST}:{ports.internal}").list_topics(timeout=REQUEST_TIMEOUT_S)
    except KafkaException as error:
        return str(error)
    if seen.controller_id <= 0:
        return "no controller is elected"
    leaderless = [
        f"{topic.topic}-{partition.id}"
        for topic in seen.topics.values()
        for partition in topic.partitions.values()
        if partition.leader <= 0
    ]
    return f"partitions without a leader: {', '.join(leaderless)}" if leaderless else None
