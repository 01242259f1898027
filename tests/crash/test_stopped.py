"""A query that is stopped in the middle of a batch: its connections stay until the batch has
ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import exactum
from exactum.kafka.participant import KafkaParticipant
from exactum.local import LocalKafka
from exactum.spark.run.housekeeping import TICK_S
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.mark.deep
@pytest.mark.parametrize("step", ["list_open", "verify", "commit"])
def test_stopped_in_the_middle_of_a_batch(
    spark: SparkSession,
    kafka: LocalKafka,
    topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    """Held at a step that talks to the broker, stopped, and let go when whoever looks after it
    has seen the end.
    """
    reached, go = threading.Event(), threading.Event()
    real = getattr(KafkaParticipant, step)

    def held(*arguments: Any) -> Any:
        reached.set()
        assert go.wait(WAIT_MAX_S)
        return real(*arguments)

    monkeypatch.setattr(KafkaParticipant, step, held)
    sink = exactum.KafkaSink(topic("out", partitions=2), bootstrap_servers=kafka.bootstrap_servers)
    exact = exactum.exactly_once(sink)
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = exact.start(
        stream.selectExpr("CAST(value AS STRING) AS value").writeStream,
        checkpoint=tmp_path / "checkpoint",
    )
    assert reached.wait(WAIT_MAX_S)
    stopping = threading.Thread(target=lambda: query.stop(now=True))
    stopping.start()
    time.sleep(TICK_S + 1)
    go.set()
    stopping.join(WAIT_MAX_S)
    assert not query.isActive
    assert query.exception() is None
