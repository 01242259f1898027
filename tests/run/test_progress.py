"""Spark's reports as events, and events as numbers on a line."""

from __future__ import annotations

import json

import pytest

from exactum import events
from exactum.monitor.fact import Fact
from exactum.monitor.query_stats import quantile
from exactum.monitor.script_stats import ScriptStats
from exactum.ops.run import run_display
from exactum.ops.run.run_display import RunDisplay, numbers
from exactum.protocol.model import Incarnation
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.spark.run.housekeeping import progress_of

RUN = QueryRun("q1", Incarnation("0123456789abcdef"), Guarantee.EXACTLY_ONCE)
STARTED = {
    "query_id": "q1",
    "batch_id": 0,
    "incarnation": RUN.incarnation,
    "name": "shout",
    "run_id": "r1",
    "guarantee": "exactly once",
    "checkpoint": "file:/data/shout",
}
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


def test_the_board_adds_up_and_shows_percentiles() -> None:
    """Rows and epochs by query, p50 and p95 of every phase over the last epochs, rows a second
    over the last ten.
    """
    stats = ScriptStats()
    stats.restarts = 2
    stats.observe(Fact(0, "RunStarted", STARTED))
    for number in range(100):
        fields = {
            "query_id": "q1",
            "batch_id": number,
            "rows": 10,
            "transactions": 1,
            "phase_ms": {"write": number, "commit": 1.0},
            "rows_by_sink": {"orders": 10},
        }
        stats.observe(Fact(100_000 + number * 100, "EpochCompleted", fields))
    for topic, records in (("a", 1000), ("b", 234)):
        lag = events.InputLag("q1", 99, RUN.incarnation, topic, 1, records, None, 0)
        stats.observe(Fact.of(lag, 110_000))
    query = stats.queries["q1"]
    assert (query.epoch, query.rows, query.lag_records) == (99, 1000, 1234)
    assert query.phase_ms()["write"] == (50.0, 95.0)
    assert query.phase_ms()["epoch"] == (51.0, 96.0)
    assert query.rows_per_s(109_900) == pytest.approx(100.0)
    assert query.rows_per_s(10**9) == 0.0
    shown = numbers(query, stats.restarts, 109_900)
    for part in ("shout", "epoch 99", "1,000 rows", "lag 1,234", "restarts 2", "write 50 / 95"):
        assert part in shown


def test_quantiles_of_few_values() -> None:
    """One value is its own percentile."""
    assert quantile([3.0], 0.5) == quantile([3.0], 0.95) == 3.0


def test_numbers_are_lines_where_they_change(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With ``--watch``; what is said is a line as well."""
    monkeypatch.setattr(run_display, "NUMBERS_EVERY_S", 0.0)
    stats = ScriptStats()
    stats.observe(Fact(0, "RunStarted", STARTED))
    with RunDisplay(stats, watch=True) as view:
        view.say("something happened")
        for _ in range(3):
            view.tick()
        stats.restarts = 1
        view.tick()
    said = [line.partition(" exactum run: ")[2] for line in capfd.readouterr().err.splitlines()]
    assert said[0] == "something happened"
    assert [line.rpartition(", ")[2] for line in said[1:]] == ["restarts 0", "restarts 1"]
    assert all(line.startswith("query shout: ") for line in said[1:])
