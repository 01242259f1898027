"""What a run tells of itself: Spark's reports as events, and its end where a micro-batch was cut off."""

from __future__ import annotations

import json

import pytest

from exactum.errors import EpochAborted
from exactum.protocol.model import Incarnation
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.spark.run.batches import how_it_ended
from exactum.spark.run.housekeeping import progress_of

RUN = QueryRun("q1", Incarnation("0123456789abcdef"), Guarantee.EXACTLY_ONCE)
REPORT = json.loads(
    """{"id": "q1", "runId": "r", "name": "shout", "batchId": 7, "numInputRows": 30, "processedRowsPerSecond": 15.5,
    "durationMs": {"addBatch": 100, "triggerExecution": 160}, "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
    "stateOperators": [{"numRowsTotal": 5, "memoryUsedBytes": 100}, {"numRowsTotal": 6, "memoryUsedBytes": 50}],
    "sources": [
        {"description": "KafkaV2[...]", "startOffset": null, "endOffset": {"a": {"0": 10, "1": 20}},
         "latestOffset": {"a": {"0": 15, "1": 20, "2": 4}}},
        {"description": "RateStream", "startOffset": 1, "endOffset": 2, "latestOffset": 3}]}"""
)


def test_a_report_of_spark_becomes_an_event() -> None:
    """Rows, state over all operators, and the durations."""
    event = progress_of(REPORT, RUN)
    assert (event.query_id, event.batch_id, event.input_rows) == ("q1", 7, 30)
    assert (event.state_rows, event.state_bytes) == (11, 150)
    assert (event.input_rows_per_s, event.processed_rows_per_s) == (0.0, 15.5)
    assert event.phase_ms == {"addBatch": 100.0, "triggerExecution": 160.0}


def test_what_spark_does_not_say_is_none() -> None:
    """No state without a stateful operator, no rate that is not a number."""
    event = progress_of(
        {"batchId": 0, "inputRowsPerSecond": "NaN", "sources": [], "stateOperators": []}, RUN
    )
    assert (event.state_rows, event.state_bytes) == (None, None)
    assert event.input_rows_per_s == 0.0


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
