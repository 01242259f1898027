"""A start with other settings of the session, which Spark does not keep in the checkpoint."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.kit.spark.torn_stream import configured
from tests.spark.conftest import Query

pytestmark = pytest.mark.spark

ZONE = "spark.sql.session.timeZone"
SAID = f"{ZONE} was 'Europe/Berlin' and is 'America/New_York' now"


def by_day(rows: DataFrame) -> DataFrame:
    """23:30 of one day in New York, 5:30 of the next one in Berlin."""
    at = f.timestamp_micros(f.col("v") * 0 + 1_767_241_800_000_000)
    return rows.groupBy(f.to_date(at).cast("string").alias("k")).agg(f.sum("v").alias("v"))


def test_another_time_zone_is_told_of(
    spark: SparkSession, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    """One day's rows become two keys of the state, which nobody would notice."""
    how = {"transform": by_day, "mode": "update"}
    query.give(1)
    with configured(spark, {ZONE: "Europe/Berlin"}):
        assert query.run(query.exactly_once(), **how) is None
        query.give(10)
        assert query.run(query.exactly_once(), **how) is None
    assert query.values() == [1, 11]
    assert "other settings" not in caplog.text
    query.give(100)
    with configured(spark, {ZONE: "America/New_York"}):
        assert query.run(query.exactly_once(), **how) is None
        assert caplog.text.count(SAID) == 1
        query.give(1000)
        assert query.run(query.exactly_once(), **how) is None
    assert query.values() == [1, 11, 100, 1100]
    assert caplog.text.count(SAID) == 1, "told once: now it is the setting of before"


def test_told_again_while_no_batch_stands(
    spark: SparkSession, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    query.give(1)
    with configured(spark, {ZONE: "Europe/Berlin"}):
        assert query.run(query.exactly_once()) is None
    query.give(10)
    exact = query.exactly_once().for_each_batch(checkpoint=query.checkpoint)

    def fails(frame: DataFrame, batch_id: int) -> None:
        exact(frame.selectExpr("k", "CAST(raise_error('no') AS BIGINT) AS v"), batch_id)

    with configured(spark, {ZONE: "America/New_York"}):
        assert query.run(fails) is not None
        assert query.run(query.exactly_once()) is None
    assert caplog.text.count(SAID) == 2
    assert query.values() == [1, 10]
