"""What the records of a range promise, where not all batches have some."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from exactum.errors import InvariantBroken
from exactum.files.slot_log import SlotLog
from exactum.monitor.decisions import SparkProgress, promises
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import Decision, DecisionRecord, Epoch
from exactum.storage.folder import Folder
from tests.kit.errors import raised
from tests.kit.sql.sql_database import SqlDatabase
from tests.sql.conftest import database

__all__ = ["database"]
QUERY = "query"
ABORT, COMMIT = Decision.ABORT, Decision.COMMIT


PASSED_OVER = [(0, 0, ABORT), (0, 1, COMMIT), (1, 0, COMMIT), (4, 0, ABORT), (4, 1, COMMIT)]
"""Batches 2 and 3 have no records, and a start went on behind them."""


def log_of(folder: Path, *records: tuple[int, int, Decision]) -> SlotLog:
    log = SlotLog(Folder(folder), QUERY)
    filled(log, records)
    log.close()
    return SlotLog(Folder(folder), QUERY)


def filled(log: DecisionLog, records: Sequence[tuple[int, int, Decision]]) -> None:
    for batch_id, attempt, decision in records:
        log.decide(DecisionRecord(Epoch(QUERY, batch_id), attempt, decision, "i"))


def test_a_checkpoint_that_spark_began(tmp_path: Path) -> None:
    """Batches of before have no records: exactum begins with the ABORT of its first start."""
    log = log_of(tmp_path, (5, 0, ABORT), (5, 1, COMMIT), (6, 0, ABORT))
    found = promises(log, SparkProgress(5, 5), None, None)
    assert [promise.batch_id for promise in found.each] == [5]
    assert found.forgotten_below == 5
    assert found.unrecorded == ()


@pytest.mark.parametrize(
    "records",
    [
        [(5, 0, COMMIT), (6, 0, COMMIT)],
        [(3, 0, ABORT), (3, 1, COMMIT), (5, 0, COMMIT)],
        [(0, 0, ABORT), (0, 1, COMMIT), (1, 1, COMMIT), (2, 0, ABORT), (2, 1, COMMIT)],
    ],
)
def test_records_that_are_missing(
    tmp_path: Path, records: Sequence[tuple[int, int, Decision]]
) -> None:
    """In between, or of a query that did not begin with a start."""
    log = log_of(tmp_path, *records)
    newest = max(batch_id for batch_id, *_ in records)
    with raised(InvariantBroken, tmp_path):
        promises(log, SparkProgress(newest, newest), None, None)


def test_batches_that_a_start_passed_over(tmp_path: Path) -> None:
    """Spark's own sink wrote them, say. The look goes on below them, wherever it begins."""
    log = log_of(tmp_path, *PASSED_OVER)
    for last, promised in ((None, [0, 1, 4]), (3, [0, 1]), (2, [0, 1])):
        found = promises(log, SparkProgress(4, 4), None, last)
        assert [promise.batch_id for promise in found.each] == promised
        assert found.unrecorded == ((2, 3) if last != 2 else (2,))
        assert (found.undecided, found.forgotten_below) == ((), None)


def test_a_log_in_a_database(database: SqlDatabase) -> None:
    """Behind such a stretch, and in a checkpoint that Spark began: it looks no further than Spark's
    own logs go.
    """
    log = SlotLog(database.files(QUERY), QUERY)
    filled(log, [(1_000_000, 0, ABORT), (1_000_000, 1, COMMIT), (1_000_001, 0, COMMIT)])
    filled(log, [(1_000_004, 0, ABORT), (1_000_004, 1, COMMIT)])
    found = promises(log, SparkProgress(1_000_004, 1_000_004, 999_990), None, None)
    assert [p.batch_id for p in found.each] == [1_000_000, 1_000_001, 1_000_004]
    assert found.unrecorded == (1_000_002, 1_000_003)
    assert found.forgotten_below == 1_000_000
    log.close()
