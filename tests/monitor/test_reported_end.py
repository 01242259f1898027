"""How a run's end is told where its micro-batch was cut off."""

from __future__ import annotations

import pytest

from exactum.errors import EpochAborted
from exactum.spark.run.batches import how_it_ended

LOST = "org.apache.spark.SparkException: Job aborted: ExecutorLostFailure (executor 1 exited)"
CUT = EpochAborted("cut off")


@pytest.mark.parametrize(
    ("error", "failure", "told"),
    [
        (None, None, ("", "", "")),
        (None, LOST, ("StreamingQueryException", "", LOST)),
        (CUT, LOST, ("StreamingQueryException", "", LOST)),
        (CUT, None, ("EpochAborted", EpochAborted.disposition.value, "cut off")),
    ],
)
def test_the_end_is_told(
    error: Exception | None, failure: str | None, told: tuple[str, str, str]
) -> None:
    """By stop() it is a stop, by the failure of the query that failure, and else what it says."""
    assert how_it_ended(error, failure) == told
