"""What the records of a range promise, where not all batches have some."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from exactum.errors import InvariantBroken
from exactum.files.decision_log import FileDecisionLog
from exactum.ops.verify.promise import promises
from exactum.protocol.model import Decision, DecisionRecord, Epoch

QUERY = "query"
ABORT, COMMIT = Decision.ABORT, Decision.COMMIT


def log_of(folder: Path, *records: tuple[int, int, Decision]) -> FileDecisionLog:
    log = FileDecisionLog(folder, QUERY)
    for batch_id, attempt, decision in records:
        log.decide(DecisionRecord(Epoch(QUERY, batch_id), attempt, decision, "i"))
    log.close()
    return FileDecisionLog(folder, QUERY)


def test_a_checkpoint_that_spark_began(tmp_path: Path) -> None:
    """Batches of before have no records: exactum begins with the ABORT of its first start."""
    log = log_of(tmp_path, (5, 0, ABORT), (5, 1, COMMIT), (6, 0, ABORT))
    found = promises(log, 5, None, None, finished=5)
    assert [promise.batch_id for promise in found.each] == [5]
    assert found.forgotten_below == 5
    assert found.unrecorded == ()


@pytest.mark.parametrize(
    "records",
    [
        [(5, 0, COMMIT), (6, 0, COMMIT)],
        [(3, 0, ABORT), (3, 1, COMMIT), (5, 0, COMMIT)],
        [(0, 0, ABORT), (0, 1, COMMIT), (2, 0, ABORT), (2, 1, COMMIT)],
    ],
)
def test_records_that_are_missing(
    tmp_path: Path, records: Sequence[tuple[int, int, Decision]]
) -> None:
    """In between, or of a query that did not begin with a start."""
    log = log_of(tmp_path, *records)
    newest = max(batch_id for batch_id, *_ in records)
    with pytest.raises(InvariantBroken, match="it is missing"):
        promises(log, newest, None, None, finished=newest)
