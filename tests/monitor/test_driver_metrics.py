"""A real driver that serves its own metrics, asked for after its query has begun."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import exactum
from exactum.monitor.recorder import RECORDER
from tests.kit.monitor.prometheus import get, samples
from tests.kit.waiting import await_true


@pytest.mark.deep
def test_a_driver_serves_its_own_query(spark: SparkSession, tmp_path: Path) -> None:
    """Its run is shown though it began before, its epochs as they come, and its end as an end."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    sink = exactum.FileSink(str(tmp_path / "out"), format="json")
    query = exactum.exactly_once(sink).start(
        rows.selectExpr("value").writeStream.trigger(processingTime="200 milliseconds"),
        checkpoint=tmp_path / "checkpoint",
        name="own",
    )
    try:
        await_true(lambda: (query.lastProgress or {"batchId": 0})["batchId"] > 1, "it works")
        server = exactum.serve_metrics(port=0)
        ready = server.url.replace("/metrics", "/readyz")

        def value(name: str, **labels: str) -> float | None:
            for found, at, number in samples(get(server.url)[1]):
                if found == f"exactum_{name}" and labels.items() <= at.items():
                    return number
            return None

        await_true(lambda: value("epochs_total", query="own", outcome="committed"), "an epoch")
        run, guarantee = str(query.runId), "exactly once"
        assert value("query_info", id=str(query.id), run=run, guarantee=guarantee) == 1
        assert value("up", query="own") == 1
        assert (value("rows_committed_total", query="own") or 0) % 5 == 0
        assert (value("epoch_phase_seconds_count", query="own", phase="write") or 0) > 0
        assert get(ready) == (200, "ready\n")
        query.stop()
        await_true(lambda: value("stopped", query="own") == 1, "its end is heard")
        assert value("up", query="own") == 0
        assert get(ready) == (200, "ready\n")
        server.close()
    finally:
        query.stop()
        RECORDER.stats.queries.clear()
