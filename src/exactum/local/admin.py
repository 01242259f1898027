"""Requests of a cluster's administration, with their errors turned into exactum's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from exactum.errors import LocalServerError

if TYPE_CHECKING:  # confluent-kafka is imported where it is used: importing this layer stays cheap
    from confluent_kafka.admin import AdminClient

CHANGE_TIMEOUT_S = 120.0


def admin_client(servers: Iterable[str]) -> AdminClient:
    """Return a new client of the servers (``host:port``)."""
    from confluent_kafka.admin import AdminClient

    return AdminClient(
        {
            "bootstrap.servers": ",".join(servers),
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
