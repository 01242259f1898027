"""A cluster of three nodes, replication 3, min in-sync replicas 2, of which one after the other
dies.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient
from kafka.protocol.metadata import FindCoordinatorRequest

from exactum.kafka.sink import KafkaSink
from exactum.kafka.transaction import KafkaTransaction
from exactum.protocol.model import PreparedTransaction
from tests.kit.cluster.child import Child
from tests.kit.cluster.onlooker import Onlooker
from tests.kit.cluster.supervised import SupervisedQuery
from tests.kit.environment import environment
from tests.kit.servers.kafka_cluster import KafkaNodes
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.broker

EPOCH_TIMEOUT_S = WAIT_MAX_S
STREAM_TIMEOUT_S = WAIT_MAX_S


@pytest.fixture(scope="module")
def nodes() -> Iterator[KafkaNodes]:
    with KafkaNodes() as cluster:
        yield cluster
        cluster.kill()  # a clean end would take the nodes 20 s


def leaders_of(cluster: KafkaNodes, topic: str) -> set[int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    return {
        p.leader
        for p in admin.list_topics(topic, timeout=WAIT_MAX_S).topics[topic].partitions.values()
    }


def coordinators_of(cluster: KafkaNodes, transactional_ids: Sequence[str]) -> set[int]:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    try:
        request = FindCoordinatorRequest(
            key_type=1, coordinator_keys=list(transactional_ids), min_version=4
        )
        answers = admin._manager.run(admin._manager.send, request, None).coordinators
        assert [a.error_code for a in answers] == [0] * len(transactional_ids), (
            f"no coordinator: {answers}"
        )
        return {a.node_id for a in answers}
    finally:
        admin.close()


class Outage:
    """Kills one node at the step it is told, and brings it back afterwards."""

    def __init__(self, cluster: KafkaNodes, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._due: tuple[str, str] | None = None
        self.down: int | None = None
        self.killed: list[int] = []

    def plan(self, step: str, whom: str) -> None:
        self._due = step, whom

    def between(
        self, step: str, prepared: Sequence[PreparedTransaction]
    ) -> AbstractContextManager[None]:
        """Just before the step, or ``during`` it."""
        if self._due is None or self._due[0] not in (step, f"during {step}"):
            return nullcontext()
        (when, whom), self._due = self._due, None
        if whom == "leader":
            candidates = leaders_of(self._cluster, self._topic)
        else:
            ids = [KafkaTransaction.of(p).transactional_id for p in prepared]
            candidates = coordinators_of(self._cluster, ids)
        self.down = victim = min(
            candidates, key=self.killed.count
        )  # each in turn, as far as it goes
        self.killed.append(victim)
        if when == step:
            self._cluster.kill(victim)
            return nullcontext()
        return meanwhile(lambda: self._cluster.kill(victim))

    def over(self) -> None:
        assert self.down is not None, "the step at which a node was to be killed did not come"
        self._cluster.restart(self.down)
        self.down = None


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """The block and ``act`` begin at the same time."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(act)
        yield
        done.result()


STEPS = (
    ("write", "leader"),
    ("verify", "coordinator"),
    ("decide", "coordinator"),
    ("during commit", "coordinator"),
    ("committed", "leader"),
)


@pytest.mark.deep
def test_every_decided_epoch_is_visible_once_whichever_node_dies(
    nodes: KafkaNodes, tmp_path: Path
) -> None:
    """A partition leader or the transactions' coordinator is killed before or during each step of
    an epoch; one more epoch runs while it is down, another one when it is back. Every epoch is
    there once, nothing is left open, nothing hangs."""
    topic = "epochs"
    nodes.create_topic(topic, partitions=6)
    outage = Outage(nodes, topic)
    sink = KafkaSink(topic, bootstrap_servers=nodes.bootstrap_servers)
    took: dict[str, float] = {}
    with SupervisedQuery(sink, "three-nodes", tmp_path, outage.between) as query:

        def epoch(name: str) -> None:
            took[name] = query.epoch()
            assert took[name] < EPOCH_TIMEOUT_S, f"{name} took {took[name]:.0f} s:\n" + "\n".join(
                query.reasons
            )

        epoch("all up")
        for step, whom in STEPS:
            outage.plan(step, whom)
            epoch(f"{whom} killed at {step}")
            epoch(f"after {whom} killed at {step}, node {outage.down} still down")
            outage.over()
            epoch(f"after {whom} killed at {step}, all up")
        for (name, seconds), phases in zip(took.items(), query.phases, strict=True):
            print(f"{seconds:5.1f} s  {name}: {phases} ms")
        assert len(set(outage.killed)) >= 2, f"killed {outage.killed}: always the same node"
        onlooker = Onlooker(nodes.bootstrap_servers)
        onlooker.check_at_rest(topic)
        onlooker.check_exact(query.expected, topic)


@pytest.mark.deep
def test_a_spark_query_is_exact_while_one_node_after_the_other_dies(
    nodes: KafkaNodes, tmp_path: Path
) -> None:
    """Kafka to Kafka by Spark, fed all the time, while each node is killed and brought back."""
    numbers, shouted = "numbers", "shouted"
    nodes.create_topic(numbers, partitions=4)
    nodes.create_topic(shouted, partitions=4)
    onlooker = Onlooker(nodes.bootstrap_servers)
    expected: set[str] = set()

    def feed(seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            values = [f"n{number}" for number in range(len(expected), len(expected) + 200)]
            onlooker.produce(numbers, values)
            expected.update(value.upper() for value in values)
            time.sleep(0.1)

    def completed() -> int:
        path = tmp_path / "events"
        return path.read_text().count('"EpochCompleted"') if path.exists() else 0

    feed(0.5)
    with spark_stream(nodes.bootstrap_servers, tmp_path, numbers, shouted) as stream:
        stream.until(lambda: completed() >= 1, "the first epoch was complete", STREAM_TIMEOUT_S)
        for node in nodes.nodes:
            feed(0.5)
            nodes.kill(node)
            feed(4.0)
            nodes.restart(node)
            before = completed()
            stream.until(
                lambda b=before: completed() > b or feed(0.1),
                f"node {node} was back",
                STREAM_TIMEOUT_S,
            )
        (tmp_path / "stop").touch()
        stream.finishes(STREAM_TIMEOUT_S)
    onlooker.check_at_rest(shouted)
    onlooker.check_exact(expected, shouted)


def spark_stream(bootstrap_servers: str, folder: Path, source: str, output: str) -> Child:
    """``stream.py`` on a Spark of its own."""
    argument = {
        "folder": str(folder),
        "bootstrap_servers": bootstrap_servers,
        "source": source,
        "output": output,
        "read": {"maxOffsetsPerTrigger": 400},
        "session": {
            "master": "local[2]",
            "spark.ui.showConsoleProgress": False,
        },
    }
    return Child(
        "stream",
        [sys.executable, "-m", "tests.kit.cluster.stream", json.dumps(argument)],
        folder,
        environment(SPARK_LOCAL_DIRS=str(folder / "spark")),
    )
