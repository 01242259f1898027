"""Which Python runs the tasks, in each way in which they get their records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.kafka.broker import Broker
from tests.kit.source.columnar_ways import MOVING, PACKED, run, written
from tests.kit.spark.torn_stream import configured
from tests.source.test_columnar import give

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.mark.variants(1)
def test_the_one_that_spark_sql_is_given(
    stream: Any, broker: Broker, tmp_path: Path, way: str, packed_jobs: list[Any]
) -> None:
    """The context's own may lack exactum, or have another one."""
    name = broker.topic("python", partitions=2)
    expected = give(stream.broker, name, 5, 2)
    python, seen = tmp_path / "python", tmp_path / "seen"
    python.write_text(f'#!/bin/sh\ntouch {seen}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with configured(stream.spark, {"spark.sql.execution.pyspark.python": str(python)}):
        assert run(stream, stream.read(name)) is None
    assert [row["offset"] for row in written(stream.out)] == [row["offset"] for row in expected]
    assert seen.exists()
    assert bool(packed_jobs) == (way in (PACKED, MOVING))
