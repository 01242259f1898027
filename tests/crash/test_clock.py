"""The driver's clock and the broker's differ by more than any transaction lasts. Without Spark."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.kit.crash.epochs import Query, rows
from tests.kit.kafka.broker import Broker

pytestmark = pytest.mark.broker

ROWS = [{"key": f"{n}".encode(), "value": f"{n}".encode()} for n in range(50)]


@pytest.mark.deep
@pytest.mark.parametrize("ahead_s", [3_600, -3_600])
def test_epochs_are_committed_whatever_the_drivers_clock_says(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    """An hour ahead, every transaction looked older than its timeout, and no epoch was ever
    decided.
    """
    servers, wall = broker.servers, time.time
    query = Query(tmp_path, broker.topic("clock"), servers)
    with query.driver() as driver:
        driver.epoch(0, rows(ROWS))
        monkeypatch.setattr(time, "time", lambda: wall() + ahead_s)
        driver.epoch(1, rows(ROWS))
    with query.driver() as driver:
        driver.epoch(2, rows(ROWS))
    assert len(query.values()) == 3 * len(ROWS)
