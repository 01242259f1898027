"""Rows that only PostgreSQL can judge, in a real query: its driver writes the dead letters of those
that it refuses, under the decision of their neighbours.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import exactum
from exactum import events
from tests.decoding.test_policies import DyingLog
from tests.kit.errors import text_of
from tests.kit.kafka.broker import Broker, producer_to
from tests.kit.spark.ended import ended
from tests.kit.sql.postgres_server import Database
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.broker]

RECORDS = 60
BAD = {n: f"{{é {n}".encode() for n in range(0, RECORDS, 7)}


@pytest.mark.parametrize("guarantee", [exactum.exactly_once, exactum.at_least_once])
def test_letters_come_from_the_driver(
    spark: SparkSession,
    database: Database,
    broker: Broker,
    tmp_path: Path,
    guarantee: Any,
) -> None:
    """Two tables refuse the same records; the dead letters are in Kafka, as they were, once for
    each table, although the driver dies once before the decision.
    """
    columns = 'key bytea, value jsonb, topic text, partition int, "offset" bigint, '
    tables = [database.table(f"{columns}timestamp timestamptz") for _ in range(2)]
    source, dead = broker.topic("in", partitions=2), broker.topic("dead")
    producer = producer_to(broker.servers)
    for n in range(RECORDS):
        value = BAD.get(n, json.dumps({"n": n}).encode())
        producer.produce(source, value, bytes([n, 255]), partition=n % 2)
    assert producer.flush(WAIT_MAX_S) == 0
    seen: list[Any] = []
    exact = guarantee is exactum.exactly_once
    log = DyingLog(tmp_path / "checkpoint", batch_id=0)
    settings = {"decision_log": log} if exact else {}
    write = guarantee(
        *map(database.sink, tables),
        dead_letters=broker.sink(dead),
        on_event=seen.append,
        **settings,
    )

    def run() -> str | None:
        frame = broker.frame(spark, source)
        rows = frame.selectExpr(
            "key", "CAST(value AS STRING) AS value", "topic", "partition", "offset", "timestamp"
        )
        writer = rows.writeStream.trigger(availableNow=True)
        return text_of(ended(lambda: write.start(writer, checkpoint=tmp_path / "checkpoint")))

    if exact:
        assert "died before the decision" in (run() or "")
        assert [database.rows(f"SELECT * FROM {table}") for table in tables] == [[], []]
    assert run() is None
    for table in tables:
        found = map(int, database.values(table, "value->>'n'"))
        assert sorted(found) == sorted(set(range(RECORDS)) - BAD.keys())
    letters = broker.read(dead)
    assert sorted((one.key, one.value) for one in letters) == sorted(
        [(bytes([n, 255]), value) for n, value in BAD.items()] * 2
    )
    for one in letters:
        headers = dict(one.headers)
        n = one.key[0]
        place = int(headers["exactum.source_partition"]), int(headers["exactum.source_offset"])
        assert headers["exactum.source_topic"] == source.encode() and place == (n % 2, n // 2)
        assert b"PostgreSQL refuses it: invalid input syntax" in headers["exactum.error"]
    sinks = [dict(one.headers)["exactum.sink"].decode() for one in letters]
    assert sorted(sinks) == sorted([f"postgres:{table}" for table in tables] * len(BAD))
    if exact:
        (aside,) = [e.rows for e in seen if isinstance(e, events.RowsDeadLettered)]
        assert aside == 2 * len(BAD)
        assert log.rows_committed("dead letters") == {0: aside}
        (completed,) = [e for e in seen if isinstance(e, events.EpochCompleted)]
        assert completed.rows == 2 * RECORDS
