"""A node of a local Kafka before it runs: its ports and properties, its program, and its formatted
folder.
"""

from __future__ import annotations

import base64
import fcntl
import os
import random
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exactum.errors import LocalServerError
from exactum.java.jars import (
    SCALA_VERSION,
    ClassArchive,
    JarSet,
    archive_of,
    cached,
    dependency,
    recipe,
)
from exactum.java.program import SMALL_OPTIONS, java_program, run_program

KAFKA_VERSION = "4.3.1"
SLF4J_VERSION = "1.7.36"  # the line that Kafka's own slf4j-api belongs to

LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "-Dorg.slf4j.simpleLogger.levelInBrackets=true",
    # Hundreds of lines with every setting of every part, at each start.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
)

# What a real broker runs with: benchmarks run on a cluster of one node.
LASTING_OPTIONS = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")

HOST = "127.0.0.1"  # not "localhost": some machines try ::1 first, where no broker listens

# Below the range from which systems take the ports of outgoing connections: a client that tries
# again and again while the broker is down must not get the broker's own port by chance.
PORT_MIN, PORT_MAX = 15_000, 32_000
PORT_TRIES_MAX = 200

CLIENTS, INTERNAL, CONTROLLER = "CLIENTS", "INTERNAL", "CONTROLLER"

FORMAT_TIMEOUT_S = 180.0
FORMAT_HEAP_MB = 128


# ---- ports and properties ------------------------------------------------------------------------


@dataclass(frozen=True)
class Ports:
    """The TCP ports of a node. ``internal`` serves the node itself and the administration."""

    clients: int
    internal: int
    controller: int


def choose_ports(clients: int = 0) -> Ports:
    """Return free ports; ``clients`` is the clients' one, unless it is 0.

    Raises LocalServerError where that is taken.
    """
    if clients and not _is_free(clients):
        raise LocalServerError(
            f"port {clients} of {HOST} is in use. Stop what listens there, choose another port, or "
            "let port=0 find a free one."
        )
    first, internal, controller = _free_ports(3, taken=clients)
    return Ports(clients or first, internal, controller)


def _free_ports(count: int, taken: int) -> list[int]:
    found: set[int] = set()
    # Random, so that two test runs that start at once hardly ever meet.
    for _ in range(PORT_TRIES_MAX):
        port = random.randrange(PORT_MIN, PORT_MAX)
        if port not in (*found, taken) and _is_free(port):
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


def server_properties(ports: Ports, log_folder: Path) -> dict[str, str]:
    """Return the server properties of a node that is broker and controller, the only one."""
    advertised = f"{CLIENTS}://{HOST}:{ports.clients},{INTERNAL}://{HOST}:{ports.internal}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": INTERNAL,
        "listeners": f"{advertised},{CONTROLLER}://{HOST}:{ports.controller}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": ",".join(
            f"{name}:PLAINTEXT" for name in (CLIENTS, INTERNAL, CONTROLLER)
        ),
        "log.dirs": str(log_folder),
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        # 50 partitions each are for clusters; their creation is what a first commit waits for.
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "8",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
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
    }


def render_properties(properties: Mapping[str, str]) -> str:
    """Return the text of a Java properties file. Raises LocalServerError for a line break."""
    for key, value in properties.items():
        if "\n" in key + value:
            raise LocalServerError(f"the broker property {key!r} contains a line break.")
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in properties.items())


# ---- the program ---------------------------------------------------------------------------------


def broker_jars() -> list[Path]:
    """Return the class path of a Kafka broker, retrieved at the first call (some 20 s).

    Raises LocalServerError.
    """
    return cached(broker_set())


def broker_set() -> JarSet:
    """Return what Ivy is asked for."""
    return JarSet(
        "broker",
        KAFKA_VERSION,
        f"a local Kafka {KAFKA_VERSION} broker",
        recipe(
            dependency("org.apache.kafka", f"kafka_{SCALA_VERSION}", KAFKA_VERSION),
            dependency("org.slf4j", "slf4j-simple", SLF4J_VERSION),
        ),
    )


def kafka_archive() -> ClassArchive:
    """The archive of a broker's classes; it may not be made yet.

    Raises LocalServerError without Java, or if the jars cannot be retrieved.
    """
    return archive_of("kafka", broker_jars())


def kafka_command(program: str, heap_mb: int, *options: str) -> list[str]:
    """Return the command that runs a Java class of the broker; its arguments are to be appended.

    Raises LocalServerError without Java, or if the jars cannot be retrieved.
    """
    return [
        java_program("java"),
        f"-Xmx{heap_mb}m",
        "-Xshare:auto",
        "-Djava.awt.headless=true",
        *LOG_OPTIONS,
        *options,
        *("-cp", os.pathsep.join(str(jar) for jar in broker_jars())),
        program,
    ]


# ---- the folder ----------------------------------------------------------------------------------


def locked(folder: Path) -> int:
    """Take the folder for this process; returns the descriptor that holds it, to be closed.

    The system frees it when the process dies, however it dies. Raises LocalServerError where
    another cluster runs there: two of them would ruin each other's data.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise LocalServerError(
            f"a Kafka runs on {folder} already, whatever its port. Use that one or stop it first; "
            "or give this one another data_dir. Nothing was changed."
        ) from None
    return descriptor


def new_cluster_id() -> str:
    # A leading "-" would read as an option on the command line.
    return "e" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def format_node(folder: Path, cluster_id: str, *options: str) -> None:
    """Format the data of a node that are not yet formatted. Idempotent.

    ``folder`` has its ``server.properties``, whose log folder is ``data`` within it.
    Raises LocalServerError with the tool's own words.
    """
    if (folder / "data" / "meta.properties").exists():
        return
    archive = kafka_archive().reading_options()
    tool = "kafka.tools.StorageTool"
    command = kafka_command(tool, FORMAT_HEAP_MB, *SMALL_OPTIONS, *archive)
    command += ["format", "--ignore-formatted", "-t", cluster_id, *options]
    command += ["-c", str(folder / "server.properties")]
    status, said = run_program(command, FORMAT_TIMEOUT_S)
    if status is None:
        raise LocalServerError(f"formatting {folder} took more than {FORMAT_TIMEOUT_S:.0f} s.")
    if status != 0:
        raise LocalServerError(f"Kafka could not format {folder}:\n{said}")
