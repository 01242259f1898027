"""A checkpoint put back from an older copy: the targets have what came after it, and it is not
written again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming import StreamingQuery

import exactum
from exactum.errors import CheckpointRefused
from tests.kit.errors import check_query_error
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.transactions import read_all

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def values_in(servers: str, topic: str) -> list[int]:
    return sorted(int(record.value or b"") for record in read_all(servers, topic))


def put_back(query: Any, copy: Path) -> None:
    shutil.rmtree(query.checkpoint)
    shutil.copytree(copy, query.checkpoint)


def refused_after_it_was_put_back(
    query: Any, tmp_path: Path, exactly_once: Callable[[], Any]
) -> str:
    """One run of two batches, a copy, and two batches more; then the start from the copy: what
    that is refused with.
    """
    running = query.start(exactly_once(), processingTime="0 seconds")
    try:
        give(query, running, 1, 2)
        shutil.copytree(query.checkpoint, tmp_path / "copy")
        give(query, running, 3, 4)
    finally:
        running.stop()
    put_back(query, tmp_path / "copy")
    return str(query.run(exactly_once()))


def give(query: Any, running: StreamingQuery, *values: int) -> None:
    """A batch for each, and wait until Spark has noted the last one."""
    for value in values:
        query.give(value)
    noted = query.checkpoint / "commits" / str(values[-1] - 1)
    end_s = time.monotonic() + 60
    while not noted.exists():
        assert running.exception() is None, running.exception()
        assert time.monotonic() < end_s, f"{noted} was not written"
        time.sleep(0.05)


def test_kafka_has_more_than_the_checkpoint(query: Any, tmp_path: Path, broker: Broker) -> None:
    """Refused as often as it is started; on purpose, with another prefix, it is written again."""
    name, servers = broker.topic("older", partitions=1), broker.servers

    def exactly_once(prefix: str = "app") -> Any:
        sink = broker.sink(
            name,
            transactional_id_prefix=prefix,
            rows=lambda frame: frame.selectExpr("CAST(v AS STRING) AS value"),
        )
        return query.exactly_once(sink)

    text = refused_after_it_was_put_back(query, tmp_path, exactly_once)
    for again in (text, str(query.run(exactly_once()))):
        check_query_error(again, CheckpointRefused, "ENDS_DIFFER", "batch 2", "'kafka:")
    assert values_in(servers, name) == [1, 2, 3, 4]
    assert query.run(exactly_once("again")) is None
    assert values_in(servers, name) == [1, 2, 3, 3, 4, 4]


def test_files_have_more_than_the_checkpoint(query: Any, tmp_path: Path) -> None:
    """The marker of the last batch says so."""
    table = tmp_path / "table"

    def exactly_once() -> Any:
        return query.exactly_once(exactum.FileSink(table, format="json"))

    text = refused_after_it_was_put_back(query, tmp_path, exactly_once)
    facts = "batch 3", "decision log", "batch 1"
    check_query_error(text, CheckpointRefused, "ENDS_DIFFER", *facts)
    lines = [line for file in table.glob("part-*") for line in file.read_text().splitlines()]
    assert len(lines) == 4
