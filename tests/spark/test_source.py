"""read_kafka's options, and the exports of the package. No broker: what is read is tested with
one.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

import exactum
from exactum.errors import SettingRefused
from exactum.spark.session import setting_name
from exactum.spark.source import positions
from exactum.spark.source.options import further_options, subscription
from tests.kit.errors import raised
from tests.kit.python import python


@pytest.mark.parametrize(
    ("topics", "option"),
    [
        ("orders", {"subscribe": "orders"}),
        ("a, b", {"subscribe": "a,b"}),
        (["a", "b"], {"subscribe": "a,b"}),
        (re.compile("a-.*"), {"subscribePattern": "a-.*"}),
        ({"a": [0, 2]}, {"assign": '{"a": [0, 2]}'}),
    ],
)
def test_topics(topics: Any, option: dict[str, str]) -> None:
    """A name, several, a pattern or an assignment, each as Spark's own option."""
    assert subscription(topics) == option


@pytest.mark.parametrize(
    "topics", ["", [], [""], {}, {"a": []}, {"a": "01"}, {"a": [-1]}, {"a": [True]}]
)
def test_topics_that_name_nothing(topics: Any) -> None:
    """Refused before Spark is asked."""
    with pytest.raises(SettingRefused):
        subscription(topics)


def test_defaults_hold_the_guarantee() -> None:
    """Committed records only, no silent loss, no half second for nothing, no questions after every
    500 records or megabyte; further options pass through with Spark's names.
    """
    assert further_options({"maxOffsetsPerTrigger": 10, "includeHeaders": True}) == {
        "maxOffsetsPerTrigger": "10",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
        "kafka.fetch.max.wait.ms": "0",
        "kafka.max.poll.records": "10000",
        "kafka.max.partition.fetch.bytes": "2097152",
    }
    given = further_options({"KAFKA.FETCH.MAX.WAIT.MS": 500})
    assert {n: v for n, v in given.items() if n.lower() == "kafka.fetch.max.wait.ms"} == {
        "KAFKA.FETCH.MAX.WAIT.MS": "500"
    }


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"SUBSCRIBE": "x"},
        {"kafka.bootstrap.servers": "x:1"},
        {"endingOffsets": "latest"},
        {"kafka.isolation.level": "read_everything"},
    ],
)
def test_options_that_are_refused(options: dict[str, Any]) -> None:
    """What has an argument of its own, what streams do not have, and what is unknown."""
    with pytest.raises(SettingRefused):
        further_options(options)


@pytest.mark.parametrize(
    "options", [{"failondataloss": False}, {"kafka.isolation.level": "read_uncommitted"}]
)
def test_options_that_are_warned_about(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Allowed when they are asked for, with a warning."""
    with caplog.at_level(logging.WARNING, "exactum"):
        chosen = further_options(options)
    assert len(caplog.records) == 1
    assert len({name.lower() for name in chosen}) == len(chosen), "the user's spelling wins"


def test_start_positions() -> None:
    """ "earliest" is the default, "group" with a group id. The rest is in tests/source."""
    assert positions.checked_start(None, None) == "earliest"
    assert positions.checked_start(None, "billing") == "group"
    with raised(SettingRefused, "SOURCE_ARGUMENT", "'yesterday'"):
        positions.checked_start("yesterday", None)


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


def test_import_is_light() -> None:
    """``import exactum`` on an executor loads neither pyspark nor a Kafka client."""
    code = (
        "import sys, exactum; print([m for m in ('pyspark', 'confluent_kafka', 'kafka', 'numpy') "
        "if m in sys.modules])"
    )
    assert python(code).stdout.strip() == "[]"


@pytest.mark.deep
@pytest.mark.spark
def test_no_connector() -> None:
    """A session without the connector: the error says how to get it, with the version of this
    Spark.
    """
    code = """
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
    done = python(code)
    assert "[CONNECTOR_MISSING]" in done.stdout
    assert "exactum.local_session" in done.stdout
    assert "spark-sql-kafka-0-10_2.13:4." in done.stdout
