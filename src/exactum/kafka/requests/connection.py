"""The driver's connection to a cluster by kafka-python: clear and quick refusals, no passwords in
logs.

kafka-python goes on trying until its timeout, also after a wrong password, and hides why
(``client_internals``).
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Mapping
from typing import Any

import kafka.errors as kafka_errors

from exactum.errors import SettingRefused, Unavailable
from exactum.kafka.failure import DENIALS, KafkaFailure, certificate_refused, failure_of
from exactum.kafka.requests.client_internals import AdminConnection
from exactum.kafka.settings.settings import Settings, admin_settings

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
    _check_reachable(bootstrap_servers, where, connect_timeout_ms)
    connection = AdminConnection(_is_refusal)
    try:
        connection.open(
            bootstrap_servers=[s.strip() for s in bootstrap_servers.split(",") if s.strip()],
            bootstrap_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            max_in_flight_requests_per_connection=IN_FLIGHT_MAX,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=1_000,
            **_unprintable(admin_settings(settings, where)),
        )
    except (kafka_errors.KafkaError, OSError, ValueError) as error:
        last = connection.last_failure or error
        connection.close()
        raise _not_connected(where, bootstrap_servers, connect_timeout_ms, last) from error
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


def _check_reachable(bootstrap_servers: str, where: str, timeout_ms: int) -> None:
    """Connect a plain socket to one of the servers: a clear answer at once, where kafka-python
    would go on trying.

    Raises:
        SettingRefused: an address has no port.
        Unavailable: none of them accepts a connection.
    """
    reasons: list[str] = []
    for address in (a.strip() for a in bootstrap_servers.split(",") if a.strip()):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise SettingRefused(
                f"{where}: bootstrap_servers has {address!r}, which is not host:port."
            )
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout_ms / 1000).close()
            return
        except OSError as error:
            reasons.append(f"{address}: {error}")
    raise Unavailable(
        f"{where}: no broker could be reached at {bootstrap_servers} ({'; '.join(reasons)}). Is it "
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
    if is_denied(error) or _failure_of(error) is KafkaFailure.MECHANISM:
        return True
    of_our_files = (ssl.SSLError, FileNotFoundError)  # the handshake's SSLError arrives as text
    return isinstance(error, of_our_files) or certificate_refused(str(error))


def _not_connected(
    where: str, servers: str, timeout_ms: int, error: BaseException
) -> SettingRefused | Unavailable:
    if is_denied(error):
        return SettingRefused(
            f"{where}: {servers} refused the credentials ({reason_of(error)}). Look at "
            "sasl.mechanism, sasl.username and sasl.password."
        )
    if _failure_of(error) is KafkaFailure.MECHANISM:
        return SettingRefused(
            f"{where}: {servers} does not take this sasl.mechanism ({reason_of(error)})."
        )
    if _is_refusal(error):
        return SettingRefused(
            f"{where}: no TLS connection to {servers} ({reason_of(error)}). Is ssl.ca.location the "
            "file with the authority that signed the broker's certificate, can the other "
            "ssl.*.location files be read, and does the certificate name this host?"
        )
    return Unavailable(
        f"{where}: no broker answered at {servers} within {timeout_ms} ms ({reason_of(error)}). Is "
        "it running, is the address right, do the security settings match the listener?"
    )
