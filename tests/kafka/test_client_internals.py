"""The private parts of kafka-python that exactum uses are there, as they were: a new version that
changes one fails the test of its name.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient
from kafka.net import connection, transport
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from exactum.kafka.requests import BrokerRequests
from exactum.local import LocalKafka
from tests.kit.environment import ROOT

SIGNATURES = {
    KafkaConnectionManager.__init__: "(self, net, **configs)",
    KafkaConnectionManager.send: "(self, request, node_id=None, request_timeout_ms=None)",
    KafkaConnectionManager.call_soon: "(self, coro, *args)",
    KafkaConnectionManager.run: "(self, coro, *args)",
    KafkaConnectionManager._build_transport: "(self, node, timeout_at=None)",
    KafkaNetClient.__init__: "(self, net=None, manager=None, **configs)",
    NetworkSelector.__init__: "(self, **configs)",
    NetworkSelector.stop: "(self, timeout_ms=None)",
    transport.KafkaTCPTransport._sock_recv: "(self)",
    transport.KafkaSSLTransport._sock_recv: "(self)",
}


@pytest.mark.parametrize("part", SIGNATURES, ids=lambda part: part.__qualname__)
def test_called_as_ever(part: Callable[..., Any]) -> None:
    assert str(inspect.signature(part)) == SIGNATURES[part]


def test_fields_as_ever() -> None:
    """What an object has once it is made."""
    net = NetworkSelector()
    manager = KafkaConnectionManager(net, bootstrap_servers="127.0.0.1:1")
    client = KafkaNetClient(net=net, manager=manager)
    try:
        assert client._manager is manager
        assert client._net is net
        assert manager.bootstrapped is False
        assert manager.broker_version_data is None
        assert list(manager.cluster.brokers()) == []
    finally:
        client.close()
        net.stop()
    assert "kafka_client" in KafkaAdminClient.DEFAULT_CONFIG
    assert isinstance(connection.KafkaConnection.init_future, property)
    assert inspect.iscoroutinefunction(KafkaConnectionManager._build_transport)


@pytest.mark.broker
def test_nobody_counts_requests(kafka: LocalKafka) -> None:
    """A commit is a request for each task: kafka-python's metrics of each, which nobody reads, are
    off.
    """
    requests = BrokerRequests(kafka.bootstrap_servers, (), "test")
    try:
        assert requests.cluster_id()
        manager = requests._router.connection()._manager
        (node,) = manager.cluster.brokers()
        assert manager.get_connection(node.node_id)._sensors is None
        assert manager._sensors is None
    finally:
        requests.close()


PUBLIC = {"kafka", "kafka.admin", "kafka.errors"}
"""What kafka-python documents."""


def test_they_are_used_in_one_place() -> None:
    """Nothing else of exactum imports from a module that is not public, or reaches for the client's
    manager.
    """
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "src" / "exactum").rglob("*.py"))
        if path != ROOT / "src" / "exactum" / "kafka" / "client.py"
        for name in private_parts(path.read_text())
    ]
    assert found == []


def private_parts(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and node.attr == "_manager":
            yield node.attr
        yield from (n for n in names if n.partition(".")[0] == "kafka" and n not in PUBLIC)


@pytest.mark.parametrize(
    "source", ["from kafka.future import Future", "import kafka.protocol.api", "client._manager"]
)
def test_who_reaches_in_is_seen(source: str) -> None:
    assert list(private_parts(source))
