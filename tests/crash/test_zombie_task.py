"""A task that goes on after its epoch was committed without it: a speculative copy, a lost
executor. Without Spark.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from exactum.errors import ExactumError
from exactum.protocol.sink import TaskName, WriteOrder
from tests.kit.crash.epochs import Query, rows
from tests.kit.crash.oracle import ongoing
from tests.kit.kafka.broker import Broker
from tests.kit.waiting import await_true

pytestmark = pytest.mark.broker


def test_a_task_that_outlives_its_epoch_shows_nothing(broker: Broker, tmp_path: Path) -> None:
    """Its transaction is swept under its hands; what it writes after that is never visible, and
    does not stay open past the next epoch.
    """
    servers = broker.servers
    query = Query(tmp_path, broker.topic("zombie"), servers)
    zombies = []

    def start_zombie() -> None:
        zombie = driver.writers.open(WriteOrder(driver.run, 0, 1, 1), TaskName(0, 0, 0))
        zombie.write(rows([{"value": b"zombie"}]))
        await_true(
            lambda: len(ongoing(servers, query.query_id)) == 2, "the zombie's transaction is open"
        )
        zombies.append(zombie)

    with query.driver({("prepare", "after"): start_zombie}) as driver:
        driver.epoch(0, rows([{"value": b"0"}]))
        assert "LeftoversSwept" in driver.names()
        try:
            zombies[0].write(rows([{"value": b"zombie again"}]))
            print("it prepared", zombies[0].prepare())
        except ExactumError as error:
            print("it failed", error)
        driver.epoch(1, rows([{"value": b"1"}]))
        assert query.values() == ["0", "1"]
