"""How a run's end is told where its micro-batch was cut off."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from exactum.errors import EpochAborted
from exactum.spark.run.batches import EpochRunner

LOST = "org.apache.spark.SparkException: Job aborted: ExecutorLostFailure (executor 1 exited)"


@pytest.mark.parametrize(
    ("failure", "stopped", "told"),
    [
        (None, True, ("", "", "")),
        (LOST, False, ("StreamingQueryException", "", LOST)),
        (None, False, ("EpochAborted", EpochAborted.disposition.value, "cut off")),
    ],
)
def test_a_batch_that_was_cut_off(
    failure: str | None, stopped: bool, told: tuple[str, str, str]
) -> None:
    """By stop() it is a stop, by the failure of the query that failure, and else what it says."""
    events: list[Any] = []
    run = SimpleNamespace(
        failure=lambda: failure,
        was_stopped=lambda: stopped,
        about=lambda batch_id: ("q", batch_id, "i"),
        emit=events.append,
    )
    runner: Any = SimpleNamespace(run=run, _end_reported=False, _last_batch_id=4)
    for _ in range(2):
        EpochRunner.report_end(runner, EpochAborted("cut off"))
    (ended,) = events
    assert (ended.error, ended.disposition, ended.reason) == told
