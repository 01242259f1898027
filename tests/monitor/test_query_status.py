"""The verdict on a real query that ends. One that is held up, frozen, killed and in doubt:
``test_watched_query.py``.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from exactum.checkpoint.run_file import outliving
from exactum.monitor.job import read_job
from exactum.monitor.verdict import Verdict, judge
from exactum.storage.folder import Folder
from tests.kit.spark.query import Query
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = pytest.mark.slow


WAYS = ["has read all", "has read all at once", "fails", "is stopped while it waits"]


@pytest.mark.parametrize("way", [*WAYS, "is stopped halfway", "is stopped behind a batch"])
def test_an_end_is_never_taken_for_a_death(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """How it ended is written down before the run lets go of its file. Of a query that ends by
    itself, a stop is no end of its own.
    """
    files = Query(spark, tmp_path)
    files.give(1, batches=20 if way == "is stopped halfway" else 2)
    checkpoint, once = files.checkpoint, files.exactly_once()
    write = once.for_each_batch(checkpoint=checkpoint)

    def code(frame: DataFrame, batch_id: int) -> None:
        write(frame, batch_id)
        if way == "fails":
            raise ValueError("of the user")
        (query,) = spark.streams.active
        threading.Thread(target=query.stop).start()
        await_true(lambda: not query.isActive, "it was stopped")

    def run(**trigger: Any) -> Any:
        by_code = way in ("fails", "is stopped behind a batch")
        return files.start(code if by_code else once, **trigger)

    if way == "is stopped while it waits":
        query = run(processingTime="0 seconds")
        query.processAllAvailable()
        query.stop()
        assert not outliving(Folder(checkpoint), WAIT_MAX_S)
        query = run(processingTime="0 seconds")
        await_true(lambda: bool(outliving(Folder(checkpoint), 0)), "it runs again")
        query.stop()
    elif way == "is stopped halfway":
        query = run(availableNow=True)
        await_true(lambda: read_job(checkpoint).completed is not None, "it is at work")
        query.stop()
    elif way == "has read all at once":
        assert run(once=True).awaitTermination(WAIT_MAX_S)
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
    words = {"has read all": "It has read", "fails": "UnknownFailure"}
    assert verdict is (Verdict.OK if way.startswith("has read all") else Verdict.DOWN)
    assert words.get(way.removesuffix(" at once"), "It was stopped") in reason
