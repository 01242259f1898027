"""A copy of a checkpoint that was made between two runs, and that somebody starts from later: Kafka
keeps no marker of batches, but the state of each id, and an id says which run it is of.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from exactum.errors import CheckpointRefused
from tests.kit.crash.epochs import Query, rows
from tests.kit.errors import raised
from tests.kit.kafka.broker import Broker

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("batches", [1, 6])
def test_what_later_runs_wrote_is_not_written_again(
    broker: Broker, tmp_path: Path, batches: int
) -> None:
    """Whether Spark has logged the last batch of the copy as done or not, as often as it is
    tried; the query itself goes on.
    """
    query = Query(tmp_path / "place", broker.topic("copied", partitions=1), broker.servers)
    one = rows([{"value": b"row"}])
    with query.driver() as driver:
        for batch_id in range(batches):
            driver.epoch(batch_id, one)
    copy = query.copy(tmp_path / "copy")
    for batch_id in (batches, batches + 1):
        with query.driver() as driver:
            assert driver.epoch(batch_id, one).written
    for begins in (batches, batches - 1, batches):
        with copy.driver() as driver, raised(CheckpointRefused, "ENDS_DIFFER", f"batch {begins}"):
            driver.epoch(begins, one)
    with query.driver() as driver:
        assert driver.epoch(batches + 2, one).written
    assert query.values() == ["row"] * (batches + 3)


def test_starts_beside_each_other_are_no_copies(broker: Broker, tmp_path: Path) -> None:
    """Both are the next run by the record that both have read; the later one finds the decisions of
    the other in the log.
    """
    query = Query(tmp_path, broker.topic("beside", partitions=1), broker.servers)
    one = rows([{"value": b"row"}])
    with query.driver() as driver:
        driver.epoch(0, one)
    with query.driver() as first, query.driver() as second:
        for batch_id in (1, 2, 3):
            first.epoch(batch_id, one)
        assert second.epoch(1, one).written is False
        assert second.epoch(4, one).written
    assert query.values() == ["row"] * 5
