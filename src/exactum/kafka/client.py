"""The driver's connection to a cluster by kafka-python: clear and quick refusals, no passwords in
logs.

kafka-python goes on trying until its timeout, also after a wrong password, and hides why. Every
part of it that is not public and that exactum uses is here: its other modules import them from
here. There is no public way to send EndTxn for a transaction that another process opened, nor to
hear why a login failed.

    KafkaAdminClient(kafka_client=...)        a client around a manager of ours
    KafkaNetClient(net=, manager=), _manager  the same
    NetworkSelector, stop                     the loop and its thread; ended where nothing connected
    KafkaConnectionManager
        send, call_soon, run                  requests to a node, on the client's loop
        cluster, broker_version_data          the nodes; what a broker knows
        bootstrapped, get_connection,
        init_future of a connection           why a connection failed
        _build_transport,
        _sock_recv of a transport             an answer that comes together with the end
    Future                                    the answer of a request that could not be sent
    the requests that end in Request          one message of Kafka's protocol each
    MemoryRecords                             record batches as they stand in a log

The pin in pyproject is narrow for their sake; what a new version changes fails the tests on a
broker.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import kafka.errors as kafka_errors
from kafka.admin import KafkaAdminClient
from kafka.errors import UnknownBrokerIdError, UnsupportedVersionError
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer.transaction import EndTxnRequest, InitProducerIdRequest
from kafka.record import MemoryRecords

from exactum.errors import SettingRefused, Unavailable
from exactum.kafka.connection_settings import (
    admin_settings,
    checked_servers,
    connected,
    mismatch,
    security_settings,
    tls_context,
)
from exactum.kafka.failure import KafkaFailure, certificate_refused, failure_of
from exactum.kafka.settings import try_out

__all__ = [
    "AdminConnection",
    "DescribeGroupsRequest",
    "DescribeProducersRequest",
    "DescribeTransactionsRequest",
    "EndTxnRequest",
    "FetchRequest",
    "FindCoordinatorRequest",
    "InitProducerIdRequest",
    "ListOffsetsRequest",
    "ListTransactionsRequest",
    "MemoryRecords",
    "MetadataRequest",
    "OffsetFetchRequest",
]


class ReportingManager(KafkaConnectionManager):  # type: ignore[misc]
    """Remembers why a connection failed, and ends the bootstrap where repeating it is of no use.

    kafka-python's own hides the reason and goes on until its timeout, also after a wrong password.
    And it drops an answer that it reads together with the end of the connection, such as the
    refusal of a password. Its metrics, some twenty numbers for each request that nobody reads, are
    off: a commit is a request for each task.
    """

    def __init__(self, net: Any, configs: Mapping[str, Any]) -> None:
        self.last_failure: BaseException | None = None
        super().__init__(net, **{**configs, "metrics": None})

    def get_connection(self, *args: Any, **kwargs: Any) -> Any:
        """As the base class's, unless every further attempt would fail alike.

        Raises:
            Exception: the failure that says so.
        """
        failure = self.last_failure
        if not self.bootstrapped and failure is not None and _is_refusal(failure):
            raise failure
        connection = super().get_connection(*args, **kwargs)
        connection.init_future.add_errback(self._note_failure)
        return connection

    async def _build_transport(self, *args: Any, **kwargs: Any) -> Any:
        transport = await super()._build_transport(*args, **kwargs)
        receive = transport._sock_recv

        def answer_first() -> tuple[bytes, BaseException | None]:
            data, error = receive()
            return data, None if data else error  # the end is met again by the next read

        transport._sock_recv = answer_first
        return transport

    def _note_failure(self, error: BaseException) -> None:
        if not self.bootstrapped:
            self.last_failure = error


class AdminConnection:
    """A ``KafkaAdminClient`` with its own I/O thread, and what lies below it."""

    def __init__(self, admin: KafkaAdminClient, manager: Any) -> None:
        """``admin`` is for its public calls, which raise ``KafkaError``."""
        self.admin = admin
        self._manager = manager

    def addresses(self) -> dict[int, tuple[str, int]]:
        """Host and port of each node, as it advertises them in the cluster's metadata."""
        return {each.node_id: (each.host, each.port) for each in self._manager.cluster.brokers()}

    def api_version(self, request: type[Any]) -> int:
        """Highest version of a request that both sides know; -1 where there is none."""
        try:
            return int(self._manager.broker_version_data.api_version(request))
        except UnsupportedVersionError:
            return -1

    def send(self, request: Any, node_id: int | None) -> Awaitable[Any]:
        """For use on the client's loop; None: to any node. Its answer may be a ``KafkaError``."""
        sent: Awaitable[Any]
        try:
            sent = self._manager.send(request, node_id)
        except UnknownBrokerIdError as error:
            # Raised at once for a node that has died and left the metadata. As the answer of that
            # one request it makes the callers forget who sent them there, and the others' answers
            # are not lost.
            sent = Future().failure(error)
        return sent

    def ask(self, request: Any, node_id: int | None) -> Any:
        """One request's answer. Raises ``KafkaError``."""
        return self._manager.run(lambda: self.send(request, node_id))

    def run_together(self, coroutines: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """All on the client's loop, at once, to their ends."""

        async def together() -> None:
            for begun in [self._manager.call_soon(each) for each in coroutines]:
                await begun

        self._manager.run(together)

    def close(self) -> None:
        """Idempotent."""
        self.admin.close()


# ---- connecting ------------------------------------------------------------------------------


IN_FLIGHT_MAX = 1_000
"""Above it kafka-python refuses requests. Never reached: ``routing`` has a limit of its own, by
which they wait.
"""


def connect(
    settings: Mapping[str, str], where: str, connect_timeout_ms: int, request_timeout_ms: int
) -> AdminConnection:
    """A connected client with an I/O thread of its own. ``settings`` are librdkafka's.

    Raises:
        Unavailable: no bootstrap server answered within ``connect_timeout_ms``.
        SettingRefused: the broker refused the credentials, or its certificate is not trusted.
    """
    quieten_client_log()
    # kafka-python would go on trying without a user.
    try_out(dict(security_settings(settings)), where, login=True)
    bootstrap_servers = settings.get("bootstrap.servers", "")
    servers = checked_servers(bootstrap_servers, where).split(",")
    _check_reachable(servers, where, connect_timeout_ms)
    made: list[KafkaNetClient] = []

    def reporting(**configs: Any) -> KafkaNetClient:
        net = NetworkSelector(**configs)
        made.append(KafkaNetClient(net=net, manager=ReportingManager(net, configs)))
        return made[0]

    try:
        admin = KafkaAdminClient(
            kafka_client=reporting,
            bootstrap_servers=servers,
            bootstrap_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            max_in_flight_requests_per_connection=IN_FLIGHT_MAX,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=1_000,
            ssl_context=tls_context(settings),
            **_unprintable(admin_settings(settings, where)),
        )
    except (kafka_errors.KafkaError, OSError, ValueError) as error:
        last = (made and made[0]._manager.last_failure) or error
        for client in made:
            client.close()
            client._net.stop()
        refused = _refused(where, bootstrap_servers, last) or mismatch(settings, where)
        raise refused or Unavailable(
            f"{where}: no broker answered at {bootstrap_servers} within {connect_timeout_ms} ms "
            f"({reason_of(last)}). Is it running, and is the address right?"
        ) from error
    return AdminConnection(admin, made[0]._manager)


def reason_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def is_denied(error: BaseException) -> bool:
    """Whether kafka-python raises it for a right or for credentials, where asking again is of no
    use. Only errors of Kafka have its codes: ``errno`` of an OSError is another number.
    """
    is_kafkas = isinstance(error, kafka_errors.KafkaError)
    failure = failure_of(getattr(error, "errno", None) if is_kafkas else None)
    return failure in (KafkaFailure.DENIED, KafkaFailure.LOGIN)


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
            return connected(address, timeout_ms / 1000).close()
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
