"""Others who touch our transactional ids, and others whose ids only look like ours. Without
Spark.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from exactum.errors import EpochAborted
from exactum.testing import Crash
from tests.kit.crash.epochs import Moment, Query, crash, rows
from tests.kit.crash.oracle import ongoing
from tests.kit.kafka.broker import Broker
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = pytest.mark.broker

OURS = [f"ours-{n}" for n in range(100)]


def frame() -> object:
    return rows([{"key": value.encode(), "value": value.encode()} for value in OURS])


class Intruder:
    """A producer of somebody else that takes over the id of our transaction when it is called."""

    def __init__(self, query: Query, broker: Broker, and_then: str = "nothing") -> None:
        self._query = query
        self._broker = broker
        self._and_then = and_then
        self.producer: Producer | None = None

    def __call__(self) -> None:
        # librdkafka adds partitions to a transaction in a thread of its own.
        servers = self._broker.servers
        await_true(lambda: bool(ongoing(servers, self._query.query_id)), "ours is open")
        self.producer = self._broker.initialised(ongoing(servers, self._query.query_id)[0])
        if self._and_then == "nothing":
            return
        self.producer.begin_transaction()
        self.producer.produce(self._query.topic, "foreign")
        self.producer.flush(WAIT_MAX_S)
        if self._and_then == "commit":
            self.producer.commit_transaction(WAIT_MAX_S)


@pytest.mark.variants(1)
@pytest.mark.parametrize("moment", [("write", "after"), ("verify", "before")])
def test_an_id_taken_before_the_decision_voids_the_attempt(
    broker: Broker, tmp_path: Path, moment: Moment
) -> None:
    """The epoch is not decided, the error says what to do, and the next start writes it once."""
    query = Query(tmp_path, broker.topic("foreign"), broker.servers)
    with query.driver() as driver:
        driver.epoch(0, rows([{"value": b"first"}]))
    intruder = Intruder(query, broker)
    with query.driver({moment: intruder}) as driver, pytest.raises(EpochAborted) as raised:
        driver.epoch(1, frame())
    assert intruder.producer is not None
    print(raised.value)
    assert moment == ("write", "after") or "transactional_id_prefix" in str(raised.value)
    assert query.values() == ["first"]
    with query.driver() as driver:
        driver.epoch(1, frame())
    assert query.values() == sorted(["first", *OURS])


@pytest.mark.variants(1)
@pytest.mark.parametrize("and_then", ["nothing", "commit", "stay open"])
@pytest.mark.parametrize("moment", [("decide", "after", 2), ("commit", "before")])
def test_an_id_taken_after_the_decision_loses_nothing(
    broker: Broker, tmp_path: Path, moment: Moment, and_then: str
) -> None:
    """Our transaction is aborted by the intruder; a commit of the intruder's own is not taken
    for ours.
    """
    query = Query(tmp_path, broker.topic("foreign"), broker.servers)
    intruder = Intruder(query, broker, and_then)
    with query.driver({moment: intruder}) as driver:
        driver.epoch(0, frame())
        assert "TransactionsSalvaged" in driver.names()
    assert intruder.producer is not None
    if and_then == "stay open":
        intruder.producer.abort_transaction(WAIT_MAX_S)
    assert [value for value in query.values() if value != "foreign"] == sorted(OURS)


def test_an_id_taken_while_we_are_down_loses_nothing(broker: Broker, tmp_path: Path) -> None:
    """Decided and killed; somebody takes the id and commits his own before we are back:
    salvaged.
    """
    query = Query(tmp_path, broker.topic("foreign"), broker.servers)
    with query.driver({("commit", "before"): crash}) as driver, pytest.raises(Crash):
        driver.epoch(0, frame())
    intruder = Intruder(query, broker, "commit")
    intruder()
    with query.driver() as driver:
        driver.epoch(0, frame())
        assert "TransactionsSalvaged" in driver.names()
    assert [value for value in query.values() if value != "foreign"] == sorted(OURS)


def test_an_id_taken_after_the_commit_changes_nothing(broker: Broker, tmp_path: Path) -> None:
    """Committed, killed before Spark knew; somebody takes the id and aborts: not written again."""
    query = Query(tmp_path, broker.topic("foreign"), broker.servers)
    with query.driver({("commit", "after"): crash}) as driver:
        with pytest.raises(Crash):
            driver.epoch(0, frame())
        name = json.loads(driver.prepared[0].payload)["transactional_id"]
    broker.transaction(name, query.topic, "foreign").abort_transaction(WAIT_MAX_S)
    with query.driver() as driver:
        driver.epoch(0, frame())
        assert driver.names() == ["EpochRedelivered", "OlderRunsFenced"]
    assert query.values() == sorted(OURS)
