"""A cluster of three nodes, replication 3, min in-sync replicas 2, of which one after the other
dies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient
from kafka.protocol.metadata import FindCoordinatorRequest

from exactum import errors
from exactum.errors import Disposition, ExactumError
from exactum.kafka.sink import KafkaSink
from exactum.kafka.transaction import KafkaTransaction
from tests.kit.crash import oracle
from tests.kit.crash.epochs import Driver, Moments, Query, rows
from tests.kit.crash.jobs import Job, World, new_world
from tests.kit.kafka.broker import Broker
from tests.kit.servers.kafka_cluster import KafkaNodes
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.broker

TASKS, ROWS_OF_A_TASK = 4, 400
STARTS_OF_AN_EPOCH_MAX = 4
AGAIN = (Disposition.RETRY, Disposition.ABORT)
"""After these a supervisor starts the query again."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[KafkaNodes]:
    with KafkaNodes() as cluster:
        yield cluster
        cluster.kill()  # a clean end would take the nodes 20 s


def leaders_of(cluster: KafkaNodes, topic: str) -> set[int]:
    found = cluster.admin().list_topics(topic, timeout=WAIT_MAX_S).topics[topic]
    return {partition.leader for partition in found.partitions.values()}


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


class Outage(Moments):
    """A query without Spark, of which one node after the other is killed at a step that is due; it
    is started anew after every error that says one may.
    """

    def __init__(self, cluster: KafkaNodes, topic: str, folder: Path) -> None:
        super().__init__()
        self.killed: list[int] = []
        self.expected: dict[str, list[str]] = {}
        self.due: tuple[str, str, str] | None = None
        self._cluster = cluster
        self._query = Query(folder, topic, cluster.bootstrap_servers)
        self._driver: Driver | None = None
        self._batch_id = -1

    def at(self, step: str, when: str, sink: str = "") -> Callable[[], None] | None:
        return self._kill if self.due is not None and self.due[:2] == (step, when) else None

    def _kill(self) -> None:
        assert self.due is not None and self._driver is not None
        if self.due[2] == "leader":
            candidates = leaders_of(self._cluster, self._query.topic)
        else:
            ids = [KafkaTransaction.of(p).transactional_id for p in self._driver.prepared]
            candidates = coordinators_of(self._cluster, ids)
        self.due = None
        self.killed.append(min(candidates, key=self.killed.count))  # each in turn
        self._cluster.kill(self.killed[-1])

    def epoch(self, what: str) -> None:
        """The next one, starts included."""
        self._batch_id += 1
        tasks = [
            [f"{self._batch_id}-{task}-{row}" for row in range(ROWS_OF_A_TASK)]
            for task in range(TASKS)
        ]
        began_s, reasons = time.monotonic(), list[str]()
        while len(reasons) < STARTS_OF_AN_EPOCH_MAX:
            try:
                if self._driver is None:
                    sink = KafkaSink(
                        self._query.topic, bootstrap_servers=self._cluster.bootstrap_servers
                    )
                    self._driver = Driver(self._query, sink, self)
                frames = [rows([{"key": v, "value": v} for v in values]) for values in tasks]
                self._driver.epoch(self._batch_id, *frames)
                break
            except ExactumError as error:
                if error.disposition not in AGAIN:
                    raise
                reasons.append(f"{type(error).__name__}: {error}")
                self.close()
        took_s = time.monotonic() - began_s
        print(f"{took_s:5.1f} s  {what}: {reasons}")
        assert len(reasons) < STARTS_OF_AN_EPOCH_MAX and took_s < WAIT_MAX_S, reasons
        assert self.due is None, "the step at which a node was to be killed did not come"
        self.expected |= {value: [value] for values in tasks for value in values}

    def close(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.__exit__(None)


STEPS = (
    ("write", "after", "leader"),
    ("verify", "before", "coordinator"),
    ("decide", "before", "coordinator"),
    ("commit", "half", "coordinator"),
    ("commit", "after", "leader"),
)


@pytest.mark.deep
def test_every_decided_epoch_is_visible_once_whichever_node_dies(
    nodes: KafkaNodes, tmp_path: Path
) -> None:
    """A partition leader or the transactions' coordinator is killed before or during each step of
    an epoch; one more epoch runs while it is down, another one when it is back. Every epoch is
    there once, nothing is left open, nothing hangs."""
    topic, servers = "epochs", nodes.bootstrap_servers
    nodes.create_topic(topic, partitions=6)
    query = Outage(nodes, topic, tmp_path)
    try:
        query.epoch("all up")
        for step in STEPS:
            query.due = step
            query.epoch(f"{step}")
            query.epoch(f"after {step}, node {query.killed[-1]} still down")
            nodes.restart(query.killed[-1])
            query.epoch(f"after {step}, all up")
        assert len(set(query.killed)) >= 2, f"killed {query.killed}: always the same node"
        oracle.check_at_rest(servers, [topic], "")
        oracle.check_exact(oracle.read_all(servers, [topic]), query.expected, [topic])
    finally:
        query.close()


class Supervised:
    """A job that is started anew after an error that says one may."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._job: Job = world.job()
        self._before = 0

    def completed(self) -> int:
        if self._job.ended():
            error: Any = getattr(errors, self._job.result().get("error", ""), None)
            assert error is not None and error.disposition in AGAIN, self._job.failed("it ended")
            self._before += self._here()
            self._job.kill()
            self._job = self._world.job()
        return self._before + self._here()

    def _here(self) -> int:
        return sum(event["event"] == "EpochCompleted" for event in self._job.events())

    def end(self) -> None:
        self._job.kill()


@pytest.mark.deep
def test_a_spark_query_is_exact_while_one_node_after_the_other_dies(
    nodes: KafkaNodes, tmp_path: Path
) -> None:
    """Kafka to Kafka by Spark, fed all the time, while each node is killed and brought back."""
    servers = nodes.bootstrap_servers
    spec = {"drain": False, "max_offsets": 400}
    world = new_world(Broker(nodes), tmp_path, records=200, spec=spec)

    def fed(holds: Callable[[], bool], seconds: float) -> bool:
        """Feed until it holds, or so long."""
        end_s = time.monotonic() + seconds
        while not (is_so := holds()) and time.monotonic() < end_s:
            world.source.produce(servers, 200)
            time.sleep(0.1)
        return is_so

    with world.reader() as reader:
        query = Supervised(world)
        try:
            assert fed(lambda: query.completed() >= 1, WAIT_MAX_S)
            for node in nodes.nodes:
                nodes.kill(node)
                fed(lambda: query.completed() < 0, 4.0)
                nodes.restart(node)
                before = query.completed()
                assert fed(lambda before=before: query.completed() > before, WAIT_MAX_S)
        finally:
            query.end()
        with world.job({"drain": True, "max_offsets": 3000}) as job:
            assert job.finishes() == [{"outcome": "finished"}]
        world.check_exact(reader)
