"""The driver's clock and the broker's differ by more than any transaction lasts. Without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exactum.local import LocalKafka
from tests.kit.crash.epochs import Query, rows
from tests.kit.crash.oracle import check_at_rest, read_all

pytestmark = pytest.mark.broker

ROWS = [{"key": f"{n}".encode(), "value": f"{n}".encode()} for n in range(50)]


@pytest.mark.deep
@pytest.mark.parametrize("ahead_s", [3_600, -3_600])
def test_epochs_are_committed_whatever_the_drivers_clock_says(
    kafka: LocalKafka,
    topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ahead_s: int,
) -> None:
    """An hour ahead, every transaction looked older than its timeout, and no epoch was ever
    decided.
    """
    servers, wall = kafka.bootstrap_servers, time.time
    query = Query(tmp_path, topic("clock"), servers)
    with query.driver() as driver:
        driver.epoch(0, rows(ROWS))
        monkeypatch.setattr(time, "time", lambda: wall() + ahead_s)
        driver.epoch(1, rows(ROWS))
    with query.driver() as driver:
        driver.epoch(2, rows(ROWS))
    check_at_rest(servers, [query.topic], query.query_id)
    assert len(read_all(servers, [query.topic])) == 3 * len(ROWS)
