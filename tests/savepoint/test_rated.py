"""Savepoints of a query with rules that change, dead letters and state: all of it goes on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactum.checkpoint.savepoint.create import create
from exactum.checkpoint.savepoint.restore import Identity, restore
from tests.kit.kafka.broker import Broker
from tests.kit.savepoint.rated import POISON_EVERY, Orders, Rated, Rule, new_rated
from tests.kit.waiting import await_true

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.fixture
def rated(spark: SparkSession, broker: Broker, tmp_path: Path) -> Rated:
    return new_rated(spark, broker, tmp_path)


def good(numbers: range, rate: int) -> list[tuple[int, int]]:
    return [(number, rate) for number in numbers if number % POISON_EVERY]


def bad(numbers: range) -> list[int]:
    return [number for number in numbers if number % POISON_EVERY == 0]


@pytest.mark.deep
def test_rules_letters_and_state_go_along(rated: Rated, broker: Broker, tmp_path: Path) -> None:
    """One savepoint is cut while the query runs, one stops it. Moved, the query writes no order
    twice though it comes again, and rates by the rules of each epoch, also where one was decided,
    its driver died, and the topic has lost the rules since. A fork of the first one writes what
    came after it, each order and each letter once.
    """
    orders, rules = Orders(broker, rated.source.topic), Rule(broker, rated.rules)
    rules.write(1)
    orders.produce(*range(100))
    with rated.running():
        early = create(str(rated.checkpoint), tmp_path / "early")
        await_true(lambda: rated.ends(rated.last()) == {0: 100}, "the query reads all input")
        late = create(str(rated.checkpoint), tmp_path / "late", stop_query=True)
    cut = rated.ends(early.batch_id)[0]
    assert early.batch_id <= late.batch_id == rated.last()
    assert (rated.rates(), rated.lettered()) == (good(range(100), 1), bad(range(100)))

    rules.write(2)
    orders.produce(
        *(number for number in range(100) if number % POISON_EVERY), *range(100, 130)
    )  # most come again
    moved = dataclasses.replace(rated, checkpoint=tmp_path / "moved", offsets_max=1000)
    restore(tmp_path / "late", str(moved.checkpoint), Identity.SAME)
    (seen,) = moved.checkpoint.rglob("exactum/control/*/*")
    assert seen.name.startswith(f"{0:020d}-"), "the rules have not changed so far"
    assert moved.run() is None
    expected = good(range(100), 1) + good(range(100, 130), 2)
    assert (moved.rates(), moved.lettered()) == (expected, bad(range(130)))

    outputs = {
        "output": broker.topic("forked", partitions=2),
        "letters": broker.topic("fork-letters", partitions=2),
    }
    fork = dataclasses.replace(rated, checkpoint=tmp_path / "fork", offsets_max=1000, **outputs)
    restore(tmp_path / "early", str(fork.checkpoint))
    assert fork.run() is None
    assert fork.last() > early.batch_id
    assert (fork.rates(), fork.lettered()) == (good(range(cut, 130), 2), bad(range(cut, 130)))

    # decided, and the driver died; then the rules were lost and others written
    moved.forget_last_commit()
    rules.forget()
    rules.write(3)
    orders.produce(*range(130, 150))
    assert moved.run() is None
    expected += good(range(130, 150), 3)
    assert (moved.rates(), moved.lettered()) == (expected, bad(range(150)))
