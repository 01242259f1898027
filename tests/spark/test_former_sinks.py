"""A sink that is removed from a query, or renamed: what its killed tasks left open is swept, or
named.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import exactum
from exactum import events
from exactum.checkpoint.layout import STAGING
from exactum.protocol.sink import DEAD_LETTERS, Sink
from exactum.storage.folder import Folder
from tests.kit.crash.oracle import ongoing
from tests.kit.kafka.broker import Broker
from tests.kit.opened_sink import OpenedSink
from tests.kit.query_record import newest, on_file
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.spark.folder_sink import FolderSink
from tests.kit.staged_files import waiting

pytestmark = [pytest.mark.spark]

COLUMNS = (("k", "string"), ("v", "bigint"))


def leave_open(query: Any, sink: Sink, columns: Any, rows: Any) -> None:
    """As a run of the query whose driver and task were killed before the decision."""
    query_id = json.loads((query.checkpoint / "metadata").read_text())["id"]
    staging = Folder(os.path.realpath(query.checkpoint / STAGING))
    with OpenedSink(sink, columns, query_id=query_id, staging=staging) as killed:
        assert killed.prepare(rows, batch_id=1)


@pytest.fixture
def tables(postgres: LocalPostgres) -> Any:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        for name in ("former", "present"):
            connection.execute(f"DROP TABLE IF EXISTS {name}")
            connection.execute(f"CREATE TABLE {name} (k text, v bigint)")
        yield connection


@pytest.mark.deep
@pytest.mark.postgres
@pytest.mark.parametrize("then", [exactum.exactly_once, exactum.at_least_once])
def test_a_database_sink_that_was_renamed(
    query: Any, tables: Any, postgres: LocalPostgres, then: Any
) -> None:
    """Staged rows for the sink's old table are gone after the first start without it, whatever its
    guarantee.
    """

    def sink(table: str) -> exactum.PostgresSink:
        return exactum.PostgresSink(postgres.url, table=table)

    def staged() -> int:
        return len(waiting(query.checkpoint / STAGING))

    query.give(1)
    assert query.run(query.exactly_once(sink("former"))) is None
    leave_open(query, sink("former"), COLUMNS, pa.record_batch({"k": ["o"], "v": [99]}))
    assert staged() == 1
    query.give(2)
    assert query.run(then(sink("present"), on_event=query.events.append)) is None
    assert staged() == 0
    assert tables.execute("SELECT v FROM former").fetchall() == [(1,)]
    assert tables.execute("SELECT v FROM present").fetchall() == [(2,)]
    swept = [(e.participant, e.transactions) for e in query.seen(events.LeftoversSwept)]
    assert swept == [("postgres:former", 1)]
    for number in range(3, 10):  # a file of a batch that is visible is kept for a while
        query.give(number)
        assert query.run(query.exactly_once(sink("present"))) is None
    known = on_file(query.checkpoint).sinks
    assert [one.name for one in known] == ["postgres:present"], "found empty, and forgotten"


@pytest.mark.broker
def test_a_kafka_sink_that_was_replaced(query: Any, broker: Broker, tmp_path: Path) -> None:
    """An open transaction of the sink's old topic is aborted by the first start with another
    sink on the cluster.
    """
    old, new = broker.topic("old", partitions=1), broker.topic("new", partitions=1)

    def sink(name: str, prefix: str) -> exactum.KafkaSink:
        return broker.sink(
            name,
            transactional_id_prefix=prefix,
            rows=lambda batch: batch.selectExpr("CAST(v AS STRING) AS value"),
        )

    query.give(1)
    assert query.run(query.exactly_once(sink(old, "one"))) is None
    leave_open(
        query, sink(old, "one"), (("value", "string"),), pa.record_batch({"value": ["lost"]})
    )
    assert len(ongoing(broker.servers, "one/")) == 1
    query.give(2)
    assert query.run(query.exactly_once(sink(new, "two"))) is None
    assert ongoing(broker.servers, "one/") == []
    assert [e.participant for e in query.seen(events.LeftoversSwept)] == [f"kafka:{old}"]


@pytest.mark.deep
@pytest.mark.postgres
def test_a_sink_that_nobody_reaches(query: Any, tables: Any, postgres: LocalPostgres) -> None:
    """A start whose sinks are all elsewhere says which former one may have left something, and
    goes on saying it.
    """
    query.give(1)
    assert query.run(query.exactly_once(exactum.PostgresSink(postgres.url, table="former"))) is None
    for _ in range(2):
        query.give(2)
        assert query.run(query.exactly_once()) is None
    told = [(e.participant, e.place) for e in query.seen(events.FormerSinkOutOfReach)]
    assert told == [("postgres:former", "staging of the query")] * 2
    assert "secret" not in newest(query.checkpoint).read_text()
    assert query.values() == [2, 2]


@pytest.mark.deep
def test_dead_letters_of_former_runs(query: Any, tmp_path: Path) -> None:
    """Starts without it find nothing open there, and forget it (what commands make of that:
    tests/dead_letters). A query that has it again has it once.
    """
    picky = FolderSink(str(query.out), refuses_v=99)
    rows = exactum.FileSink(str(tmp_path / "rows"), format="json")
    letters = exactum.FileSink(str(tmp_path / "letters"), format="json")

    def known() -> list[bool]:
        return [s.present for s in on_file(query.checkpoint).sinks if s.name == DEAD_LETTERS]

    query.give(1, 99)
    assert query.run(query.exactly_once(picky, rows, dead_letters=letters)) is None
    for _ in range(3):
        query.give(2)
        assert query.run(query.exactly_once(picky, rows)) is None
        assert known() == []
    query.give(99)
    assert query.run(query.exactly_once(picky, rows, dead_letters=letters)) is None
    assert known() == [True]
