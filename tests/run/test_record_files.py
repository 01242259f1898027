"""Records of a checkpoint that only Hadoop reaches, where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactum.errors import Unavailable
from exactum.spark.run.record_files import record_files
from tests.kit.errors import raised

pytestmark = pytest.mark.spark

NOBODY = "hdfs://127.0.0.1:1/checkpoint"


def test_a_store_that_does_not_answer_is_unavailable(spark: SparkSession) -> None:
    """A supervisor starts such a query again; nobody has to read a page of Java for it."""
    java = spark.sparkContext._jsc.hadoopConfiguration()
    java.set("ipc.client.connect.max.retries", "0")
    files = record_files(spark, NOBODY, Path("exactum/records"))
    asked = (files.names, lambda: files.read("0.json"), lambda: files.create("0.json", {}))
    for ask in asked:
        with raised(Unavailable, f"{NOBODY}/exactum/records", "ConnectException") as caught:
            ask()
        assert "\tat " not in str(caught.value), "not a trace"
