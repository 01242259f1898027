"""Run a local Kafka until somebody interrupts it: what `exactum local kafka` does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType

from exactum.errors import LocalServerError
from exactum.local.admin import listed_topics
from exactum.local.kafka import LocalKafka

CHECK_INTERVAL_S = 0.5


def run_kafka(
    port: int = 9092,
    data_dir: str | os.PathLike[str] | None = None,
    topics: Sequence[str] = (),
    *,
    echo: Callable[[str], None] = lambda line: None,
) -> None:
    """Start a Kafka, tell `echo` how to use it, and stop it cleanly at SIGINT or SIGTERM.

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
