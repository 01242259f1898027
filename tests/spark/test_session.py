"""What ``local_session`` takes and refuses, what the package exports, and a start with other settings
of the session, which Spark does not keep in the checkpoint.
"""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import exactum
from exactum.errors import SettingRefused
from exactum.spark.session import setting_name
from tests.kit.errors import raised
from tests.kit.python import python
from tests.kit.spark.query import Query
from tests.kit.spark.torn_stream import configured

ZONE = "spark.sql.session.timeZone"
SAID = f"{ZONE} was 'Europe/Berlin' and is 'America/New_York' now"


def by_day(rows: DataFrame) -> DataFrame:
    """23:30 of one day in New York, 5:30 of the next one in Berlin."""
    at = f.timestamp_micros(f.col("v") * 0 + 1_767_241_800_000_000)
    return rows.groupBy(f.to_date(at).cast("string").alias("k")).agg(f.sum("v").alias("v"))


@pytest.mark.spark
def test_another_time_zone_is_told_of(
    spark: SparkSession, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    """One day's rows become two keys of the state, which nobody would notice."""
    how = {"transform": by_day, "mode": "update"}
    query.give(1)
    with configured(spark, {ZONE: "Europe/Berlin"}):
        assert query.run(query.exactly_once(), **how) is None
    assert query.values() == [1]
    assert "other settings" not in caplog.text
    query.give(100)
    with configured(spark, {ZONE: "America/New_York"}):
        assert query.run(query.exactly_once(), **how) is None
        assert caplog.text.count(SAID) == 1
        query.give(1000)
        assert query.run(query.exactly_once(), **how) is None
    assert query.values() == [1, 100, 1100]
    assert caplog.text.count(SAID) == 1, "told once: now it is the setting of before"


def test_setting_names() -> None:
    """Spark's own names, or underscores for dots; nothing else."""
    assert setting_name("spark.sql.shuffle.partitions") == "spark.sql.shuffle.partitions"
    assert setting_name("spark_sql_shuffle_partitions") == "spark.sql.shuffle.partitions"
    with raised(SettingRefused, "SESSION_SETTING", "'shuffle'"):
        setting_name("shuffle")


def test_session_below_submit() -> None:
    """Below spark-submit the JVM runs already, without the session's jars: said at once."""
    script = "import exactum; exactum.local_session('orders')"
    run = python(script, status=1, PYSPARK_GATEWAY_PORT="1")
    assert "[SESSION_BELOW_SUBMIT]" in run.stderr


def test_exports() -> None:
    """Every public name can be had, and no other is listed."""
    for name in exactum.__all__:
        assert getattr(exactum, name) is not None
    assert dir(exactum) == sorted(exactum.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = exactum.nothing


NO_CONNECTOR = """
import exactum
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    store = {"kafka.ssl.truststore.location": "for-the-jvm-alone.jks"}  # so the driver asks no broker
    exactum.read_kafka(spark, "t", bootstrap_servers="localhost:1", **store)
except exactum.errors.SettingRefused as error:
    print(error)
spark.stop()
"""


@pytest.mark.deep
@pytest.mark.spark
def test_no_connector() -> None:
    """A session without the connector: the error says how to get it, with the version of this
    Spark.
    """
    said = python(NO_CONNECTOR).stdout
    assert "[CONNECTOR_MISSING]" in said
    assert "exactum.local_session" in said
    assert "spark-sql-kafka-0-10_2.13:4." in said
