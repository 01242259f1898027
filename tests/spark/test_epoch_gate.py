"""A query that is asked to stop between two epochs does so, whatever came after its last epoch."""

from __future__ import annotations

from pyspark.sql import DataFrame

from exactum.checkpoint.request_file import stop
from exactum.storage.folder import Folder
from tests.kit.spark.torn_stream import configured
from tests.kit.waiting import WAIT_MAX_S, await_true
from tests.spark.conftest import Query

RETAINED = {"spark.sql.streaming.minBatchesToRetain": "2"}


def test_spark_may_have_removed_the_last_epoch_from_its_log(query: Query) -> None:
    """Where the function returned without a call of exactum from more batches than Spark keeps."""
    exact = query.exactly_once().for_each_batch(checkpoint=query.checkpoint)
    commits = query.checkpoint / "commits"

    def only_the_first(frame: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            exact(frame, batch_id)

    query.give(1, batches=8)
    with configured(query.spark, RETAINED):
        running = query.start(only_the_first, processingTime="0 seconds")
        try:
            await_true((commits / "7").exists, "every batch is logged")
            assert not (commits / "0").exists()
            assert stop(Folder(query.checkpoint), WAIT_MAX_S).batch_id == 0
            assert not running.isActive
        finally:
            running.stop()
    assert query.values() == [1]
