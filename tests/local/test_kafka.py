"""LocalKafka: it serves, keeps data through kills, leaves nothing behind, guards its ports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from exactum.errors import LocalServerError
from exactum.java.program import SMALL_OPTIONS
from exactum.local import LocalKafka
from exactum.local.kafka import run_kafka
from exactum.local.own_process import members
from tests.kit.errors import raised
from tests.kit.kafka.broker import Broker
from tests.kit.servers.shared import started_kafka
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    """A broker of these tests alone: it is killed and paused."""
    with started_kafka() as cluster:
        yield cluster


def test_topics_are_made_and_deleted_but_never_by_themselves(
    kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    """A deleted topic is gone at once, one that exists is refused, and a typo makes no topic."""
    name = topic("once")
    with raised(LocalServerError, name):
        kafka.create_topic(name)
    kafka.delete_topic(name)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
    producer, refused = Producer({**settings, "message.timeout.ms": 1000}), list[KafkaError]()
    producer.produce(name, b"lost", on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(WAIT_MAX_S) == 0 and refused[0] is not None
    assert name not in kafka.admin().list_topics(timeout=WAIT_MAX_S).topics


@pytest.mark.deep
def test_two_clusters_side_by_side_and_a_kill(kafka: LocalKafka) -> None:
    """Two clusters share no port and no data; one keeps its data and port through SIGKILL, and
    leaves no process and no folder at a clean stop."""
    with LocalKafka(jvm_options=SMALL_OPTIONS) as other:
        assert other.bootstrap_servers != kafka.bootstrap_servers
        other.create_topic("kept", partitions=1)
        assert "kept" not in kafka.admin().list_topics(timeout=WAIT_MAX_S).topics
        Broker(other).produce("kept", b"before")
        servers, pid = other.bootstrap_servers, other.pid()
        other.kill()
        assert not members(pid)
        assert not other.is_running()
        other.restart()
        assert other.bootstrap_servers == servers
        Broker(other).produce("kept", b"later")
        assert Broker(other).values("kept") == [b"before", b"later"]
        pid, folder = other.pid(), other.data_dir
    assert not members(pid)
    assert not folder.exists()


@pytest.mark.deep
def test_given_folder_is_kept_and_reused(tmp_path: Path) -> None:
    """Data outlive the object when the folder is the caller's."""
    with LocalKafka(data_dir=tmp_path, jvm_options=SMALL_OPTIONS) as first:
        first.create_topic("kept", partitions=1)
        with raised(LocalServerError, tmp_path):
            LocalKafka(data_dir=tmp_path, jvm_options=SMALL_OPTIONS).start()
        Broker(first).produce("kept", b"value")
        assert first.pid() != os.getpid()
    with LocalKafka(data_dir=tmp_path, jvm_options=SMALL_OPTIONS) as second:
        assert Broker(second).values("kept") == [b"value"]


def test_paused_cluster_answers_nobody_until_resumed(kafka: LocalKafka) -> None:
    """SIGSTOP makes requests time out; SIGCONT brings the answers back."""
    kafka.pause()
    try:
        with pytest.raises(KafkaException):
            kafka.admin().list_topics(timeout=0.5)
    finally:
        kafka.resume()
    assert kafka.admin().list_topics(timeout=WAIT_MAX_S).brokers


def test_broker_that_cannot_start_is_explained() -> None:
    """A wrong property ends in an error with the broker's own words, and leaves no process."""
    with raised(LocalServerError, "log.segment.bytes"):
        LocalKafka(properties={"log.segment.bytes": "many"}, jvm_options=SMALL_OPTIONS).start()


def test_taken_port_is_refused(kafka: LocalKafka) -> None:
    """A port in use is said before anything is started."""
    port = int(kafka.bootstrap_servers.rpartition(":")[2])
    with raised(LocalServerError, f"port {port}"):
        LocalKafka(port=port)


def test_a_folder_that_kafka_takes_for_several_is_refused(tmp_path: Path) -> None:
    """It would make them, relative to wherever the process is."""
    folder = tmp_path / "one,two"
    with raised(LocalServerError, folder, "comma"):
        LocalKafka(data_dir=folder)
    assert list(tmp_path.iterdir()) == []


OWNER = """
import time
from exactum.local import LocalKafka
cluster = LocalKafka(jvm_options=%r)
cluster.start()
print(cluster.pid(), cluster.data_dir, flush=True)
time.sleep(600)
"""


def test_broker_dies_with_its_owner(tmp_path: Path) -> None:
    """When the process that started a broker is killed, the broker dies too."""
    env = {**os.environ, "TMPDIR": str(tmp_path)}  # its folder stays: nobody is left to remove it
    with subprocess.Popen(
        [sys.executable, "-c", OWNER % (SMALL_OPTIONS,)], stdout=subprocess.PIPE, text=True, env=env
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline().split()[0])
        assert pid in members(pid)
        owner.kill()
    await_true(lambda: not members(pid), "the broker has ended")


def test_foreground_run_says_where_it_serves_and_stops_at_a_signal() -> None:
    """It prints the address, makes topics that are missing, and puts the signal handlers back."""
    before = signal.getsignal(signal.SIGTERM)
    lines: list[str] = []

    def echo(line: str) -> None:
        lines.append(line)
        if "Ctrl-C" in line:
            os.kill(os.getpid(), signal.SIGTERM)

    run_kafka(port=0, topics=("orders", "orders"), echo=echo)
    assert {"Topic orders is made.", "Topic orders is there."} <= set(lines)
    assert any("127.0.0.1:" in line for line in lines)
    assert lines[-1] == "Kafka is stopped."
    assert signal.getsignal(signal.SIGTERM) is before
