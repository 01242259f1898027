"""A real Kafka broker on this machine, for tests and demos, and until somebody interrupts it."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from exactum.errors import LocalServerError
from exactum.local.admin import admin_client, has_leaders, listed_topics, not_serving, settle
from exactum.local.broker import (
    HOST,
    LASTING_OPTIONS,
    choose_ports,
    format_nodes,
    identify,
    kafka_archive,
    kafka_command,
    locked,
    render_properties,
    server_properties,
)
from exactum.local.server_process import START_TIMEOUT_S, STOP_TIMEOUT_S, ServerProcess

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

TOPIC_TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.05
CHECK_INTERVAL_S = 0.5


class LocalKafka:
    """A Kafka of this machine: one node, broker and controller in one process.

    Args:
        data_dir: where the data live; reused if it holds a cluster already, and kept at `stop`.
            None takes a temporary folder that `stop` removes.
        port: the clients' port; 0 takes a free one. It stays the same for the life of this object.
        properties: broker properties that override those of `exactum.local.broker`.
        heap_mb: the Java heap, by default 512.
        jvm_options: replaces the choice of collector and compiler.
        start_timeout_s: bound of `start` and `restart`.

    The process dies with the process that started it, even if that is killed. An object is
    used from one thread at a time. Every method raises LocalServerError if it cannot do its work.
    """

    _shape: Mapping[str, Any] = {"nodes": 1, "transaction_version": None, "security": None}
    """What a folder of data is made for once."""

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        properties: Mapping[str, str | int] | None = None,
        heap_mb: int | None = None,
        jvm_options: Sequence[str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._given_folder = None if data_dir is None else Path(data_dir).absolute()
        if "," in str(self._given_folder):
            raise LocalServerError(
                f"data_dir {self._given_folder} has a comma in its path, where Kafka's log.dirs "
                "begins another folder. Choose a folder without one. Nothing was made."
            )
        self._folder: Path | None = None
        self._lock: int | None = None
        self._ports = choose_ports(self._shape["nodes"], port)
        self._extra = {key: str(value) for key, value in (properties or {}).items()}
        self._heap_mb = heap_mb or 512
        self._jvm_options = tuple(LASTING_OPTIONS if jvm_options is None else jvm_options)
        self._start_timeout_s = start_timeout_s
        self._nodes: dict[int, ServerProcess] = {}

    def __enter__(self) -> LocalKafka:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Every node's address for clients, comma-separated; known before `start`."""
        return ",".join(f"{HOST}:{each.clients}" for each in self._ports)

    @property
    def nodes(self) -> list[int]:
        """The ids of all nodes, from 1, running or not."""
        return list(range(1, len(self._ports) + 1))

    @property
    def data_dir(self) -> Path:
        """The folder of the data. Raises LocalServerError before `start` if it is temporary."""
        folder = self._folder or self._given_folder
        if folder is None:
            raise LocalServerError("a cluster without data_dir has a folder only while it runs.")
        return folder

    def pid(self, node: int = 1) -> int:
        """Return the process id of a node."""
        return self._node(node).pid

    def is_running(self, node: int = 1) -> bool:
        """Return whether the process of a node exists; a paused one does."""
        return node in self._nodes and self._nodes[node].running

    def log_tail(self, node: int | None = None, lines: int = 40) -> str:
        """Return the last lines of one node's log, or of all nodes' logs one after the other."""
        return "\n".join(each.log_tail(lines) for each in self._chosen(node))

    # Life and death

    def start(self) -> None:
        """Start every node that does not run, and return when all of them serve. Idempotent."""
        if not self._nodes:
            self._prepare()
        try:
            for node in self._nodes.values():
                self._launch(node)
            self._await_serving()
        except BaseException:
            self.stop(timeout_s=0)
            raise

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Shut all nodes down cleanly (SIGTERM), killing what is left after `timeout_s` seconds.

        A temporary folder is removed. Idempotent.
        """
        self._shut_down(list(self._nodes.values()), timeout_s)
        if self._folder is not None and self._given_folder is None:
            shutil.rmtree(self._folder)
        self._folder = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self._nodes = {}
        atexit.unregister(self._stop_at_exit)

    def kill(self, node: int | None = None) -> None:
        """SIGKILL one node or all; their data and ports stay. Idempotent."""
        for each in self._chosen(node):
            each.kill()

    def restart(self, node: int | None = None) -> None:
        """Bring one node or all back on the same data and ports, stopping first what still runs.

        Returns when every running node serves again.
        """
        chosen = self._chosen(node)
        self._shut_down(chosen, STOP_TIMEOUT_S)
        for each in chosen:
            self._launch(each)
        self._await_serving()

    def pause(self, node: int | None = None) -> None:
        """SIGSTOP one node or all: ports stay open and nobody answers. Idempotent."""
        for each in self._chosen(node):
            each.pause()

    def resume(self, node: int | None = None) -> None:
        """SIGCONT: undo `pause`. Idempotent. It does not wait until the node serves again."""
        for each in self._chosen(node):
            each.resume()

    # Topics

    def admin(self) -> AdminClient:
        """Return a new admin client that may do everything."""
        return admin_client(f"{HOST}:{each.internal}" for each in self._ports)

    def create_topic(
        self, name: str, partitions: int = 4, config: Mapping[str, str | int] | None = None
    ) -> None:
        """Create a topic and return when every running node knows a leader for each of its
        partitions.
        """
        from confluent_kafka.admin import NewTopic

        admin = self.admin()
        settings = {key: str(value) for key, value in (config or {}).items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=settings)
        settle(f"create topic {name}", admin.create_topics([topic])[name])
        deadline = time.monotonic() + TOPIC_TIMEOUT_S
        for node in self._running_admins():
            while not has_leaders(listed_topics(node, name)[name], partitions):
                if time.monotonic() > deadline:
                    raise LocalServerError(
                        f"topic {name} got no leaders within {TOPIC_TIMEOUT_S:.0f} s."
                    )
                time.sleep(POLL_INTERVAL_S)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and return when no running node lists it any more."""
        admin = self.admin()  # which must live until it has its answer
        settle(f"delete topic {name}", admin.delete_topics([name])[name])
        deadline = time.monotonic() + TOPIC_TIMEOUT_S
        for node in self._running_admins():
            while name in listed_topics(node):
                if time.monotonic() > deadline:
                    raise LocalServerError(
                        f"topic {name} was still listed {TOPIC_TIMEOUT_S:.0f} s on."
                    )
                time.sleep(POLL_INTERVAL_S)

    def _running_admins(self) -> list[AdminClient]:
        """A new client for each running node, which asks that node first."""
        ports = zip(self.nodes, self._ports, strict=True)
        return [
            admin_client([f"{HOST}:{each.internal}"])
            for node, each in ports
            if self.is_running(node)
        ]

    # How it is done

    def _listener_properties(self, folder: Path) -> Mapping[str, str]:
        """Server properties of the clients' listener, where they are other than a plain one's.
        ``folder`` is the cluster's.
        """
        return {}

    def _chosen(self, node: int | None) -> list[ServerProcess]:
        if node is not None:
            return [self._node(node)]
        return list(self._nodes.values())

    def _node(self, node: int) -> ServerProcess:
        if node not in self._nodes:
            raise LocalServerError(
                f"there is no node {node}: started nodes are {sorted(self._nodes) or 'none'}."
            )
        return self._nodes[node]

    def _prepare(self) -> None:
        """Make the folder, write the properties and format what is not formatted. Idempotent."""
        folder = self._given_folder or Path(tempfile.mkdtemp(prefix="exactum-kafka-"))
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = locked(folder)
        self._folder = folder
        atexit.register(self._stop_at_exit, os.getpid())
        try:
            cluster_id = identify(folder, dict(self._shape))
            listener = self._listener_properties(folder)
            nodes = {}
            for number, ports in enumerate(self._ports, 1):
                node = ServerProcess(
                    f"Kafka node {number}", folder / f"node-{number}", ports.clients, number
                )
                node.folder.mkdir(exist_ok=True)
                properties = server_properties(
                    number,
                    self._ports,
                    str(node.folder / "data"),
                    listener,
                    self._extra,
                )
                path = node.folder / "server.properties"
                path.touch(mode=0o600)
                path.write_text(render_properties(properties))
                nodes[number] = node
            folders = [node.folder for node in nodes.values()]
            format_nodes(folders, cluster_id, self._shape["transaction_version"])
        except BaseException:
            self.stop()
            raise
        self._nodes = nodes

    def _launch(self, node: ServerProcess) -> None:
        archive = kafka_archive()
        options = archive.reading_options()
        if not options and node.number == 1:
            options = archive.making_options(node.folder)
        command = kafka_command("kafka.Kafka", self._heap_mb, *self._jvm_options, *options)
        node.start([*command, str(node.folder / "server.properties")])

    def _shut_down(self, nodes: Sequence[ServerProcess], timeout_s: float) -> None:
        """Ask all of them first: a node that waits for another's answer would wait in vain."""
        running = [node for node in nodes if node.running]
        for node in running:
            node.ask_to_stop()
        deadline = time.monotonic() + timeout_s
        for node in running:
            if node.await_stop(max(0.0, deadline - time.monotonic())):
                kafka_archive().keep_made(node.folder)

    def _await_serving(self) -> None:
        """Wait until each running node answers and lists all running nodes and a controller.

        Where all nodes run, every partition must have a leader too: after a kill, leaders are
        elected a moment later than the node is listed.
        """
        nodes = [node for node in self._nodes.values() if node.running]
        waiting = list(nodes)
        deadline = time.monotonic() + self._start_timeout_s
        reason = "its port is closed"
        while waiting:
            node = waiting[0]
            if not node.running:
                raise LocalServerError(
                    f"{node.name} ended while it started. The last lines of "
                    f"{node.log_file}:\n{node.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise LocalServerError(
                    f"{node.name} did not serve within {self._start_timeout_s:.0f} s "
                    f"({reason}). The last lines of {node.log_file}:\n{node.log_tail()}"
                )
            ports = self._ports[node.number - 1]
            missing = not_serving(ports, {each.number for each in nodes}, len(self._nodes))
            if missing is None:
                waiting.pop(0)
            else:
                reason = missing
                time.sleep(POLL_INTERVAL_S)

    def _stop_at_exit(self, owner: int) -> None:
        if os.getpid() == owner:  # a forked child shares the hook, not the processes
            self.stop()


def run_kafka(
    port: int = 9092,
    data_dir: str | os.PathLike[str] | None = None,
    topics: Sequence[str] = (),
    *,
    echo: Callable[[str], None] = lambda line: None,
) -> None:
    """What `exactum local kafka` does: start a Kafka, tell `echo` how to use it, and stop it
    cleanly at SIGINT or SIGTERM.

    `port` and `data_dir` are those of `LocalKafka`. Of `topics` those that are missing are made.
    It must be called from the main thread, which receives the signals. Raises LocalServerError if
    it does not start, or ends by itself.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, _interrupt) for number in numbers}
    try:
        _serve(port, data_dir, topics, echo)
    except KeyboardInterrupt:
        echo("Kafka is stopped.")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Leave whatever is going on, a start or a download too; each cleans up behind itself."""
    raise KeyboardInterrupt


def _serve(
    port: int,
    data_dir: str | os.PathLike[str] | None,
    topics: Sequence[str],
    echo: Callable[[str], None],
) -> None:
    cluster = LocalKafka(port=port, data_dir=data_dir)
    echo("Starting Kafka.")
    with cluster:
        servers = cluster.bootstrap_servers
        kept = "removed at the end" if data_dir is None else "kept"
        echo(f"Kafka serves at {servers}, its data are in {cluster.data_dir} ({kept}).")
        for topic in topics:
            echo(_make_topic(cluster, topic))
        if not topics:
            echo("Topics are not made by themselves: --topic NAME makes one; in Python:")
            echo("    from confluent_kafka.admin import AdminClient, NewTopic")
            echo(f'    admin = AdminClient({{"bootstrap.servers": "{servers}"}})')
            echo(
                '    admin.create_topics([NewTopic("orders", num_partitions=4)])["orders"].result()'
            )
        echo("Ctrl-C stops it.")
        while True:
            time.sleep(CHECK_INTERVAL_S)
            if not cluster.is_running():
                raise LocalServerError(
                    f"Kafka ended by itself. Its last lines:\n{cluster.log_tail()}"
                )


def _make_topic(cluster: LocalKafka, name: str) -> str:
    """Make the topic unless it is there, and say which."""
    if name in listed_topics(cluster.admin()):
        return f"Topic {name} is there."
    cluster.create_topic(name)
    return f"Topic {name} is made."
