"""What is done between two epochs, so that none of them waits for it. Without Spark."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from exactum.protocol.model import SourceOffsets
from exactum.spark.query import Batch
from exactum.spark.run.housekeeping import Tidying

RETAINED = 2


def test_old_records_go_with_a_run_s_first_epoch_and_between_two_later_ones() -> None:
    """Never while one is under way. A run that is too short for that is followed by another one."""
    pruned: list[int] = []
    working = threading.Lock()
    protocol: Any = SimpleNamespace(prune=pruned.append, sweep_own=lambda batch_id: 0)
    run: Any = SimpleNamespace(retained=RETAINED)
    tidying = Tidying(run, protocol, working)
    completed: Any = None
    tidying.tend()
    tidying.done(Batch(7, SourceOffsets(), first=True), completed)
    assert pruned == [4]
    for batch_id in (8, 9):
        tidying.done(Batch(batch_id, SourceOffsets(), first=False), completed)
    with working:
        tidying.tend()
    assert pruned == [4]
    tidying.tend()
    tidying.tend()
    assert pruned == [4, 6]
    for batch_id in range(10, 110):
        tidying.done(Batch(batch_id, SourceOffsets(), first=False), completed)
    assert pruned == [4, 6, 106], "it was never found between two"
    tidying.done(Batch(110, SourceOffsets(), first=False), completed)
    tidying.close()
    tidying.tend()
    assert pruned == [4, 6, 106], "the log is closed"
