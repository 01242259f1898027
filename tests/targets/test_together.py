"""What sinks do together in a real query: dead letters, decision logs elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import exactum
from tests.kit.errors import text_of
from tests.kit.spark.commit_log import forget_last_batch
from tests.kit.spark.ended import ended
from tests.kit.spark.files import InputFiles, stream_of
from tests.kit.sql.postgres_server import Database

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


ROWS: list[dict[str, object]] = [
    {"k": "short", "v": 1},
    {"k": "much too long", "v": 2},
    {"k": None, "v": 3},
]


LETTERS = (
    "key bytea, value bytea, sink text, error text, source_topic text, source_partition int, "
    "source_offset bigint, source_timestamp timestamptz, row_json text"
)


def test_dead_letters_and_decisions_in_a_database(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    """Without dead letters the query stops and names the row: nothing of the epoch is in the table, and
    no password is in the text. With them the whole row stands there. The decisions are in the
    database, nothing of them in the checkpoint, and a rerun finds them.
    """
    table, dead = database.table("k varchar(5), v bigint"), database.table(LETTERS)
    files, checkpoint = InputFiles(tmp_path / "in"), tmp_path / "checkpoint"
    frame = stream_of(spark, files.folder, "k string, v long")

    def run(**letters: Any) -> str | None:
        once = exactum.exactly_once(database.sink(table), decision_log=database.url, **letters)
        writer = frame.writeStream.trigger(availableNow=True)
        return text_of(ended(lambda: once.start(writer, checkpoint=checkpoint)))

    files.give(ROWS)
    text = run() or ""
    assert "[ROWS_REFUSED]" in text and "'k'" in text
    assert database.server.password not in text
    assert database.values(table) == []
    assert run(dead_letters=database.sink(dead)) is None
    ((value, row_json),) = database.rows(f"SELECT value, row_json FROM {dead}")
    assert json.loads(bytes(value)) == {"k": "much too long", "v": 2}
    assert row_json == bytes(value).decode()
    assert database.values(table) == [1, 3]
    forget_last_batch(checkpoint)
    files.give([{"k": "more", "v": 4}])
    assert run(dead_letters=database.sink(dead)) is None
    assert database.values(table) == [1, 3, 4]
    assert not (checkpoint / "exactum" / "decisions").exists()
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    counted = "SELECT count(*) FROM exactum_decisions WHERE query_id = %s"
    assert database.value(counted, [query_id]) >= 2
