"""The verdict on a real query that ends. One that is held up, frozen, killed and in doubt:
``test_watched_query.py``.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import exactum
from exactum.checkpoint.run_file import outliving
from exactum.monitor.job import read_job
from exactum.monitor.verdict import Verdict, judge
from exactum.storage.folder import Folder
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("way", ["has read all", "fails", "is stopped while it waits"])
def test_an_end_is_never_taken_for_a_death(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """How it ended is written down before the run lets go of its file."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("x\n")
    checkpoint = tmp_path / "checkpoint"
    once = exactum.exactly_once(exactum.FileSink(tmp_path / "out", format="json"))
    write = once.for_each_batch(checkpoint=checkpoint)

    def code(frame: DataFrame, batch_id: int) -> None:
        write(frame, batch_id)
        raise ValueError("of the user")

    def run(**trigger: Any) -> Any:
        lines = spark.readStream.text(str(tmp_path / "in")).writeStream.trigger(**trigger)
        if way != "fails":
            return once.start(lines, checkpoint=checkpoint)
        return lines.foreachBatch(code).option("checkpointLocation", str(checkpoint)).start()

    if way == "is stopped while it waits":
        query = run(processingTime="0 seconds")
        query.processAllAvailable()
        query.stop()
        assert not outliving(Folder(checkpoint), WAIT_MAX_S)
        query = run(processingTime="0 seconds")
        await_true(lambda: bool(outliving(Folder(checkpoint), 0)), "it runs again")
        query.stop()
    else:
        with suppress(StreamingQueryException):
            assert run(availableNow=True).awaitTermination(WAIT_MAX_S)
    seen: list[tuple[Verdict, str]] = []
    over_s = float("inf")
    while time.monotonic() < over_s:
        found = judge(read_job(checkpoint))
        seen.append((found.verdict, found.reason))
        if over_s == float("inf") and not outliving(Folder(checkpoint), 0):
            over_s = time.monotonic() + 1.5  # more than the recorder keeps anything
    assert not [reason for _, reason in seen if "without a word" in reason]
    verdict, reason = seen[-1]
    assert verdict is (Verdict.OK if way == "has read all" else Verdict.DOWN)
    assert {"has read all": "", "fails": "UnknownFailure"}.get(way, "It was stopped") in reason
