"""The ports and the server properties of a local cluster."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exactum.errors import LocalServerError

HOST = "127.0.0.1"  # not "localhost": some machines try ::1 first, where no broker listens

# Below the range from which systems take the ports of outgoing connections: a client that tries
# again and again while the broker is down must not get the broker's own port by chance.
PORT_MIN, PORT_MAX = 15_000, 32_000
PORT_TRIES_MAX = 200

CLIENTS, INTERNAL, CONTROLLER = "CLIENTS", "INTERNAL", "CONTROLLER"


@dataclass(frozen=True)
class Ports:
    """The TCP ports of one node. `internal` serves brokers and the test's own administration."""

    clients: int
    internal: int
    controller: int


def choose_ports(nodes: int, first: int) -> list[Ports]:
    """Return free ports for each node; the clients' ones count up from `first` unless it is 0.

    Raises LocalServerError where a demanded port is taken.
    """
    free = _free_ports(nodes * 3)
    if first:
        wanted = range(first, first + nodes)
        taken = [port for port in wanted if not _is_free(port)]
        if taken:
            raise LocalServerError(
                f"port {taken[0]} of {HOST} is in use. Stop what listens there, "
                "choose another port, or let port=0 find a free one."
            )
        free = [port for port in free if port not in wanted]
        return [Ports(port, *_pair(free, position)) for position, port in enumerate(wanted)]
    return [Ports(free[3 * n], free[3 * n + 1], free[3 * n + 2]) for n in range(nodes)]


def _pair(ports: Sequence[int], position: int) -> tuple[int, int]:
    return ports[2 * position], ports[2 * position + 1]


def _free_ports(count: int) -> list[int]:
    found: set[int] = set()
    # Random, so that two test runs that start at once hardly ever meet.
    for _ in range(PORT_TRIES_MAX):
        port = random.randrange(PORT_MIN, PORT_MAX)
        if port not in found and _is_free(port):
            found.add(port)
        if len(found) == count:
            return list(found)
    raise LocalServerError(f"found no {count} free ports between {PORT_MIN} and {PORT_MAX}.")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def server_properties(
    node_id: int,
    ports: Sequence[Ports],
    log_folder: str,
    security: Mapping[str, str],
    extra: Mapping[str, str],
) -> dict[str, str]:
    """Return the server properties of node `node_id` (from 1) of a combined KRaft cluster.

    `security` is empty for a plaintext cluster; `extra` has the last word.
    """
    own, nodes = ports[node_id - 1], len(ports)
    replicas, in_sync = (str(min(nodes, 3)), "2" if nodes >= 3 else "1")
    voters = ",".join(f"{n}@{HOST}:{each.controller}" for n, each in enumerate(ports, 1))
    advertised = f"{CLIENTS}://{HOST}:{own.clients},{INTERNAL}://{HOST}:{own.internal}"
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": INTERNAL,
        "listeners": f"{advertised},{CONTROLLER}://{HOST}:{own.controller}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": ",".join(
            f"{name}:PLAINTEXT" for name in (CLIENTS, INTERNAL, CONTROLLER)
        ),
        "log.dirs": log_folder,
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        # 50 partitions each are for clusters; their creation is what a first commit waits for.
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "8",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": "0",
        # A controller with nothing to say writes and flushes a record twice a second by default.
        "metadata.max.idle.interval.ms": "5000",
        # A node that was killed may come back before the cluster has noticed: a new registration
        # is refused while the old session lasts.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "num.recovery.threads.per.data.dir": "1",
        **security,
        **extra,
    }


def render_properties(properties: Mapping[str, str]) -> str:
    """Return the text of a Java properties file. Raises LocalServerError for a line break."""
    for key, value in properties.items():
        if "\n" in key + value:
            raise LocalServerError(f"the broker property {key!r} contains a line break.")
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in properties.items())
