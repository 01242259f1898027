"""A checkpoint put back from an older copy: the targets have what came after it, and it is not
written again. (Without Spark, for each target: tests/contract/test_put_back.py.)
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from exactum.errors import CheckpointRefused
from tests.kit.errors import check_query_error
from tests.kit.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def test_kafka_has_more_than_the_checkpoint(query: Any, tmp_path: Path, broker: Broker) -> None:
    """A run of two batches, a copy, and two batches more by the same run (by a later one:
    tests/crash/test_older_copy.py); the start from the copy is refused as often as it is tried. On
    purpose, with another prefix, it is written again.
    """
    name = broker.topic("older", partitions=1)

    def exactly_once(prefix: str = "app") -> Any:
        rows = lambda frame: frame.selectExpr("CAST(v AS STRING) AS value")  # noqa: E731
        return query.exactly_once(broker.sink(name, transactional_id_prefix=prefix, rows=rows))

    def written() -> list[int]:
        return sorted(int(record.value or b"") for record in broker.read(name))

    query.give(1)
    query.give(2)
    running = query.start(exactly_once(), processingTime="0 seconds")
    running.processAllAvailable()
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    query.give(3)
    query.give(4)
    running.processAllAvailable()
    running.stop()
    shutil.rmtree(query.checkpoint)
    shutil.copytree(tmp_path / "copy", query.checkpoint)
    for _ in range(2):
        refused = query.run(exactly_once())
        check_query_error(refused, CheckpointRefused, "ENDS_DIFFER", "batch 2", "'kafka:")
    assert written() == [1, 2, 3, 4]
    assert query.run(exactly_once("again")) is None
    assert written() == [1, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("recovers", [False, True], ids=["a new run", "a run that recovers"])
def test_the_files_of_the_newest_batch_are_gone(query: Any, broker: Broker, recovers: bool) -> None:
    """Spark's and the decision: what Kafka has of it would be written again. It was the first that
    its run had decided, also where that began with one of an earlier run.
    """
    name = broker.topic("newest", partitions=1)
    rows = lambda frame: frame.selectExpr("CAST(v AS STRING) AS value")  # noqa: E731
    once = lambda: query.exactly_once(broker.sink(name, rows=rows))  # noqa: E731
    query.give(1)
    assert query.run(once()) is None
    if recovers:
        query.forget_last_commit()
    query.give(2)
    assert query.run(once()) is None
    decisions = (query.checkpoint / "exactum" / "decisions").glob(f"{1:020d}-*")
    for file in [*(query.checkpoint / f"{log}s" / "1" for log in ("commit", "offset")), *decisions]:
        file.unlink()
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    for _ in range(2):
        refused = query.run(once())
        check_query_error(refused, CheckpointRefused, "ENDS_DIFFER", "batch 0", "batch 1")
    assert sorted(int(record.value or b"") for record in broker.read(name)) == [1, 2]
