"""On a real cluster: a Spark master, two workers on two hosts, exactum shipped with --py-files.

One application serves all tests, in any order: each test gives it one batch whose last record is
slow, so that the task that works on it has an open transaction, and everybody else of the batch is
prepared.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exactum.local import LocalKafka
from tests.kit.crash.jobs import World
from tests.kit.crash.oracle import Input
from tests.kit.standalone import shipment
from tests.kit.standalone.application import Application
from tests.kit.standalone.machines import Machines

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

HOSTS = ("127.0.0.2", "127.0.0.3")


@pytest.fixture(scope="module")
def application(
    kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Application]:
    folder = tmp_path_factory.mktemp("standalone")
    pythons = (
        shipment.python_without_exactum(folder / "driver"),
        shipment.python_without_exactum(folder / "node", shipment.EXECUTORS_NEED),
    )
    # Driver and executors have exactum by the file that is given to --py-files, or not at all.
    assert not any(shipment.can_import_exactum(python) for python in pythons)
    source, output = f"{folder.name}-in", f"{folder.name}-out"
    for topic in (source, output):
        kafka.create_topic(topic, partitions=3)
    topics = World(kafka.bootstrap_servers, folder / "application", Input(source), [output])
    with Machines(folder, HOSTS) as machines:
        shipped = shipment.shipped_file(folder)
        with Application(machines, topics, shipped, pythons) as running:
            yield running
            running.stop()


@pytest.mark.deep
def test_speculation_writes_once(application: Application) -> None:
    """Two attempts of one task that both write at the same time on two hosts: the one that Spark
    accepts is committed, and the other one's transaction is aborted though its attempt never ends
    by itself.
    """
    swept = application.swept()
    slow = application.new_round()
    first, second = application.held(slow, visitors=2)
    assert first.partition == second.partition
    assert (first.attempt, second.attempt) == (0, 1)
    assert {first.host, second.host} == set(HOSTS)
    application.let_go(slow)
    application.completed()
    application.until(
        lambda: application.swept() > swept, "the other attempt's transaction is swept"
    )
    assert application.visits(slow) == [first, second]


@pytest.mark.deep
@pytest.mark.parametrize("executors", [pytest.param(1, id="one"), pytest.param(2, id="all")])
def test_executors_killed_in_a_batch(application: Application, executors: int) -> None:
    """An executor (or every one, with all shuffle files) dies while its task has an open
    transaction and others have prepared theirs: Spark does the rest again elsewhere, and the output
    has everything once.
    """
    swept = application.swept()
    slow = application.new_round()
    held = application.held(slow, visitors=executors)
    killed = {visit.pid for visit in held[:executors]}
    assert len(killed) == executors
    for pid in killed:
        application.machines.kill_executor(pid)
    application.let_go(slow)
    application.completed()
    application.until(
        lambda: application.swept() >= swept + executors,
        "what the killed executors had open is swept",
    )
    assert any(visit.pid not in killed for visit in application.visits(slow))
