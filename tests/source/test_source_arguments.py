"""Arguments and options of ``read_kafka`` that cannot be are refused at the call, with a code."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.sql import SparkSession

import exactum
from exactum.errors import SettingRefused
from exactum.spark.source.options import further_options
from exactum.spark.spark_refusals import refusal_in

pytestmark = pytest.mark.spark

COUNTS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition")
REFUSED: list[dict[str, Any]] = [
    *({name: value} for name in COUNTS for value in (0, -5, "ten", True, 1.5, "", None)),
    *({name: 1} for name in ("includeHeaders", "failOnDataLoss", "failOnLoop")),
    {"FAILONLOOP": "no"},
    {"kafka.isolation.level": "READ_COMMITTED"},
    {"kafka.enable.auto.commit": False},
    {"kafka.auto.offset.reset": "earliest"},
    {"kafka.key.deserializer": "x"},
    {"kafka.interceptor.classes": "x"},
    {"maxOffsetPerTrigger": 10},
    {"max_offsets_per_trigger": 10},
    {"includeHeader": True},
    {"failOnDataloss2": True},
    {"minPartition": 2},
]
ARGUMENTS: list[dict[str, Any]] = [
    {"commit_offsets": "no", "group_id": "g"},
    {"commit_offsets": 1, "group_id": "g"},
    {"stall_after_s": 0},
    {"stall_after_s": -1},
    {"stall_after_s": "30"},
    {"stall_after_s": True},
    {"stall_after_s": float("nan")},
    {"topics": re.compile(r"(?P<a>x)(?P=a)")},
    {"spark": "local[2]"},
    {"spark": None},
]


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(SettingRefused) as caught:
        further_options(options)
    assert caught.value.code == "SOURCE_ARGUMENT"


@pytest.mark.parametrize(
    "options",
    [
        {"maxOffsetsPerTrigger": "10", "MINPARTITIONS": 4, "maxTriggerDelay": "5m"},
        {"includeheaders": "True", "failOnLoop": False, "fetchOffset.numRetries": 0},
        {"kafka.group.id": "g", "kafka.max.poll.records": 5, "rate": 5, "myOwnName": "x"},
    ],
    ids=str,
)
def test_options_that_can_be(options: dict[str, Any]) -> None:
    assert options.keys() <= further_options(options).keys()


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_arguments_that_cannot_be(spark: SparkSession, arguments: dict[str, Any]) -> None:
    given = {"spark": spark, "topics": "t", "bootstrap_servers": "localhost:1", **arguments}
    with pytest.raises(SettingRefused) as caught:
        exactum.read_kafka(**given)
    assert caught.value.code == "SOURCE_ARGUMENT"


def test_a_refused_start_is_the_last_line() -> None:
    """Spark shows it in the middle of an assertion, as the name of a topic."""
    refusal = (
        "[SOURCE_START] exactum refuses to start t-0 at 8 (given): it has the offsets 0 to 5; "
        "choose another start="
    )
    spoken = f"assertion failed: If startingOffsets ...\nSpecified: Set({refusal}-0)\n\tat x"
    found = refusal_in(spoken)
    assert isinstance(found, SettingRefused) and str(found) == refusal
