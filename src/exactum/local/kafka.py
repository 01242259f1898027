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
from typing import TYPE_CHECKING

from exactum.errors import LocalServerError
from exactum.local.admin import admin_client, has_leaders, listed_topics, not_serving, settle
from exactum.local.broker import (
    HOST,
    LASTING_OPTIONS,
    choose_ports,
    format_node,
    kafka_archive,
    kafka_command,
    locked,
    new_cluster_id,
    render_properties,
    server_properties,
)
from exactum.local.own_process import OwnProcess

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

START_TIMEOUT_S = 180.0  # a server that ended is seen at once; a busy machine may need minutes
STOP_TIMEOUT_S = 20.0
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
        self._ports = choose_ports(port)
        self._extra = {key: str(value) for key, value in (properties or {}).items()}
        self._heap_mb = heap_mb or 512
        self._jvm_options = tuple(LASTING_OPTIONS if jvm_options is None else jvm_options)
        self._start_timeout_s = start_timeout_s
        self._node: OwnProcess | None = None

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
        """The address for clients; known before `start`."""
        return f"{HOST}:{self._ports.clients}"

    @property
    def data_dir(self) -> Path:
        """The folder of the data. Raises LocalServerError before `start` if it is temporary."""
        folder = self._folder or self._given_folder
        if folder is None:
            raise LocalServerError("a cluster without data_dir has a folder only while it runs.")
        return folder

    def pid(self) -> int:
        """Return the process id."""
        if (pid := self._made().pid) is None:
            raise LocalServerError("Kafka is not running.")
        return pid

    def is_running(self) -> bool:
        """Return whether the process exists; a paused one does."""
        return self._node is not None and self._node.running

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the log."""
        return self._made().log_tail(lines)

    # Life and death

    def start(self) -> None:
        """Start if it does not run, and return when it serves. Idempotent."""
        try:
            self._launch()
            self._await_serving()
        except BaseException:
            self.stop(timeout_s=0)
            raise

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Shut down cleanly (SIGTERM), killing after `timeout_s` seconds.

        A temporary folder is removed. Idempotent.
        """
        self._shut_down(timeout_s)
        if self._folder is not None and self._given_folder is None:
            shutil.rmtree(self._folder)
        self._folder = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self._node = None
        atexit.unregister(self._stop_at_exit)

    def kill(self) -> None:
        """SIGKILL; data and ports stay. Idempotent."""
        self._made().kill()

    def restart(self) -> None:
        """Come back on the same data and ports, stopping first if it still runs.

        Returns when it serves again.
        """
        self._made()
        self._shut_down(STOP_TIMEOUT_S)
        self._launch()
        self._await_serving()

    def pause(self) -> None:
        """SIGSTOP: ports stay open and nobody answers. Idempotent."""
        self._made().pause()

    def resume(self) -> None:
        """SIGCONT: undo `pause`. Idempotent. It does not wait until it serves again."""
        self._made().resume()

    # Topics

    def admin(self) -> AdminClient:
        """Return a new admin client that may do everything."""
        return admin_client(f"{HOST}:{self._ports.internal}")

    def create_topic(
        self, name: str, partitions: int = 4, config: Mapping[str, str | int] | None = None
    ) -> None:
        """Create a topic and return when each of its partitions has a leader."""
        from confluent_kafka.admin import NewTopic

        admin = self.admin()
        settings = {key: str(value) for key, value in (config or {}).items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=settings)
        settle(f"create topic {name}", admin.create_topics([topic])[name])
        deadline = time.monotonic() + TOPIC_TIMEOUT_S
        while not has_leaders(listed_topics(admin, name)[name], partitions):
            if time.monotonic() > deadline:
                raise LocalServerError(
                    f"topic {name} got no leaders within {TOPIC_TIMEOUT_S:.0f} s."
                )
            time.sleep(POLL_INTERVAL_S)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and return when it is not listed any more."""
        admin = self.admin()  # which must live until it has its answer
        settle(f"delete topic {name}", admin.delete_topics([name])[name])
        deadline = time.monotonic() + TOPIC_TIMEOUT_S
        while name in listed_topics(admin):
            if time.monotonic() > deadline:
                raise LocalServerError(f"topic {name} was still listed {TOPIC_TIMEOUT_S:.0f} s on.")
            time.sleep(POLL_INTERVAL_S)

    # How it is done

    def _own_properties(self, folder: Path) -> Mapping[str, str]:
        """Server properties other than those of a plain node. ``folder`` has its data."""
        return {}

    def _format(self, folder: Path) -> None:
        format_node(folder, new_cluster_id())

    def _made(self) -> OwnProcess:
        if self._node is None:
            raise LocalServerError("this Kafka is not started.")
        return self._node

    def _prepare(self) -> OwnProcess:
        """Make the folder, write the properties and format what is not formatted. Idempotent."""
        folder = self._given_folder or Path(tempfile.mkdtemp(prefix="exactum-kafka-"))
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = locked(folder)
        self._folder = folder
        atexit.register(self._stop_at_exit, os.getpid())
        properties = {
            **server_properties(self._ports, folder / "data"),
            **self._own_properties(folder),
            **self._extra,
        }
        path = folder / "server.properties"
        path.touch(mode=0o600)
        path.write_text(render_properties(properties))
        self._format(folder)
        return OwnProcess(folder / "server.log")

    def _launch(self) -> None:
        node = self._node = self._node or self._prepare()
        archive = kafka_archive()
        options = archive.reading_options() or archive.making_options(self.data_dir)
        command = kafka_command("kafka.Kafka", self._heap_mb, *self._jvm_options, *options)
        node.start([*command, str(self.data_dir / "server.properties")])

    def _shut_down(self, timeout_s: float) -> None:
        node, ran = self._node, self.is_running()
        if node is not None and node.stop(timeout_s) and ran:
            kafka_archive().keep_made(self.data_dir)

    def _await_serving(self) -> None:
        node = self._made()
        deadline = time.monotonic() + self._start_timeout_s
        while (reason := not_serving(self._ports)) is not None:
            what = "" if node.running else "ended while it started"
            if time.monotonic() > deadline:
                what = f"did not serve within {self._start_timeout_s:.0f} s ({reason})"
            if what:
                raise LocalServerError(
                    f"Kafka {what}. The last lines of {node.log_file}:\n{node.log_tail()}"
                )
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
