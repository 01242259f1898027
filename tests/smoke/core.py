"""The core of the Spark suite over Spark Connect (`make connect-core`): the same tests, as they
stand, with a session of one server for all. What they see of events comes by a file, for these are
told beside the server. New tests are played here as well, or are named below with the reason.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from tests.kit.spark.query import Query

pytestmark = pytest.mark.filterwarnings("default")  # the client has many of its own
BY_HAND = "for_each_batch: refused over Spark Connect"
ENDS = "awaits that connections are closed: there they end with their process"
CLASSIC = {
    "test_processing_time_and_one_object_for_several_starts": ENDS,
    "test_a_query_stopped_in_the_middle_of_a_commit": ENDS,
    "test_what_a_cancelled_task_still_writes_is_swept": "by the next start: no process is left",
    "test_columns_with_odd_names": "the client's mapInArrow refuses a backtick in a column's name",
    "test_a_job_that_somebody_cancels": "cancels by the driver's SparkContext",
    "test_a_query_stopped_while_spark_begins_a_batch": BY_HAND,
    "test_a_listener_that_fails_does_not_touch_the_epoch": "reads the log of this process",
    "test_views_of_rows_and_columns_share_a_job": "asks the JVM for its jobs",
    "test_a_batch_with_other_columns": BY_HAND,
    "test_a_batch_that_the_user_keeps_stays_kept": BY_HAND,
    "test_at_least_once_where_the_checkpoint_holds_no_log": "mounts a folder by the JVM",
}
"""Tests that stay classic, and why."""
FILES = ("test_exactly_once", "test_views", "test_weaker_guarantees")
SUITE = {
    name: test
    for file in FILES
    for name, test in vars(import_module(f"tests.spark.{file}")).items()
    if name.startswith("test_") and callable(test)
}
assert set(CLASSIC) <= set(SUITE), "a test that stays classic is there no more"
globals().update({name: test for name, test in SUITE.items() if name not in CLASSIC})
pickled = cast("Any", cloudpickle)
pickled.register_pickle_by_value(sys.modules[__name__])  # the server has no tests


class Told:
    """A list of events in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def append(self, event: Any) -> None:
        with self.file.open("ab") as file:
            file.write(pickle.dumps(event))

    def clear(self) -> None:
        self.file.unlink(missing_ok=True)

    def __iter__(self) -> Iterator[Any]:
        if self.file.exists():
            with self.file.open("rb") as file:
                while file.peek(1):
                    yield pickle.load(file)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """It tries a failing task twice, as that of the suite does."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.remote("local[2,2]")
    for name, value in {"shuffle.partitions": 2, "streaming.pollingDelay": "50ms"}.items():
        builder = builder.config(f"spark.sql.{name}", value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Any:
    query: Any = Query(spark, tmp_path)
    query.events = Told(tmp_path / "events")
    return query
