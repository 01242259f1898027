"""The driver's connection to a cluster by kafka-python: clear and quick refusals, no passwords in
logs.

kafka-python goes on trying until its timeout, also after a wrong password, and hides why
(``client_internals``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import kafka.errors as kafka_errors

from exactum.errors import SettingRefused, Unavailable
from exactum.kafka.failure import DENIALS, KafkaFailure, certificate_refused, failure_of
from exactum.kafka.requests.client_internals import AdminConnection
from exactum.kafka.settings import client_settings, listener
from exactum.kafka.settings.connection_settings import (
    admin_settings,
    security_settings,
    tls_context,
)
from exactum.kafka.settings.settings import Settings

IN_FLIGHT_MAX = 1_000
"""Above it kafka-python refuses requests. Never reached: ``routing`` has a limit of its own, by
which they wait.
"""


def connect(
    bootstrap_servers: str,
    settings: Settings,
    where: str,
    connect_timeout_ms: int,
    request_timeout_ms: int,
) -> AdminConnection:
    """A connected client with an I/O thread of its own.

    Raises:
        Unavailable: no bootstrap server answered within ``connect_timeout_ms``.
        SettingRefused: the broker refused the credentials, or its certificate is not trusted.
    """
    quieten_client_log()
    # kafka-python would go on trying without a user.
    client_settings.try_out(dict(security_settings(dict(settings))), where, login=True)
    servers = listener.checked(bootstrap_servers, where).split(",")
    _check_reachable(servers, where, connect_timeout_ms)
    connection = AdminConnection(_is_refusal)
    try:
        connection.open(
            bootstrap_servers=servers,
            bootstrap_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            max_in_flight_requests_per_connection=IN_FLIGHT_MAX,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=1_000,
            ssl_context=tls_context(dict(settings)),
            **_unprintable(admin_settings(dict(settings), where)),
        )
    except (kafka_errors.KafkaError, OSError, ValueError) as error:
        last = connection.last_failure or error
        connection.close()
        refused = _refused(where, bootstrap_servers, last) or listener.mismatch(
            {**dict(settings), "bootstrap.servers": bootstrap_servers}, where
        )
        raise refused or Unavailable(
            f"{where}: no broker answered at {bootstrap_servers} within {connect_timeout_ms} ms "
            f"({reason_of(last)}). Is it running, and is the address right?"
        ) from error
    return connection


def reason_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def is_denied(error: BaseException) -> bool:
    """Whether kafka-python raises it for a right or for credentials, where asking again is of no
    use.
    """
    failure = _failure_of(error)
    return failure in DENIALS or failure is KafkaFailure.LOGIN


def quieten_client_log() -> None:
    """kafka-python logs every lost connection as an error; here they are retried, or raised with a
    reason.

    A level that the user has set stays.
    """
    client = logging.getLogger("kafka")
    if client.level == logging.NOTSET:
        client.setLevel(logging.CRITICAL)


def _check_reachable(servers: Sequence[str], where: str, timeout_ms: int) -> None:
    """Connect a plain socket to one of the servers: a clear answer at once, where kafka-python
    would go on trying.

    Raises:
        Unavailable: none of them accepts a connection.
    """
    reasons: list[str] = []
    for address in servers:
        try:
            return listener.connected(address, timeout_ms / 1000).close()
        except OSError as error:
            reasons.append(f"{address}: {error}")
    raise Unavailable(
        f"{where}: no broker could be reached at {','.join(servers)} ({'; '.join(reasons)}). Is it "
        "running, and is the address right?"
    )


class _Secret(str):
    """A password that kafka-python can use but does not show when it logs its configuration (at
    DEBUG).
    """

    def __repr__(self) -> str:
        return "'***'"


def _unprintable(configs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _Secret(value) if "password" in name else value for name, value in configs.items()
    }


def _failure_of(error: BaseException) -> KafkaFailure:
    """Only errors of Kafka have its codes: ``errno`` of an OSError is another number."""
    return (
        failure_of(getattr(error, "errno", None))
        if isinstance(error, kafka_errors.KafkaError)
        else KafkaFailure.OTHER
    )


def _is_refusal(error: BaseException) -> bool:
    """Whether every further attempt would fail alike: credentials, certificates."""
    return is_denied(error) or certificate_refused(str(error))


def _refused(where: str, servers: str, error: BaseException) -> SettingRefused | None:
    if certificate_refused(str(error)):
        return SettingRefused(
            "KAFKA_LOGIN",
            f"{where}: no TLS connection to {servers} ({reason_of(error)}). Is ssl.ca.location the "
            "file with the authority that signed the broker's certificate, and does it name this "
            "host?",
        )
    if _is_refusal(error):
        return SettingRefused(
            "KAFKA_LOGIN",
            f"{where}: {servers} refused the credentials ({reason_of(error)}). Look at "
            "security.protocol, sasl.mechanism, sasl.username and sasl.password.",
        )
    return None
