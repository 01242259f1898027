"""What sinks do together in a real query: dead letters, decision logs elsewhere."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

import exactum
from tests.kit.errors import text_of
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.spark.commit_log import forget_last_batch
from tests.kit.spark.ended import ended

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.fixture
def schema(postgres: LocalPostgres) -> Iterator[tuple[psycopg.Connection[Any], str]]:
    name = f"together_{uuid.uuid4().hex[:10]}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        yield connection, name


def run(
    spark: SparkSession, folder: Path, rows: list[dict[str, object]], batch: Any, files: str = "a"
) -> str | None:
    """One batch of ``rows`` (k string, v long); the text of the query's error, or None."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / f"{files}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    frame: DataFrame = spark.readStream.schema("k string, v long").json(str(folder / "in"))
    writer = frame.writeStream.trigger(availableNow=True)
    return text_of(ended(lambda: batch.start(writer, checkpoint=folder / "checkpoint")))


ROWS: list[dict[str, object]] = [
    {"k": "short", "v": 1},
    {"k": "much too long", "v": 2},
    {"k": None, "v": 3},
]


def test_dead_letters_and_decisions_in_a_database(spark, postgres, schema, tmp_path: Path) -> None:
    """Without dead letters the query stops and names the row: nothing of the epoch is in the table, and
    no password is in the text. With them the whole row stands there. The decisions are in the
    database, nothing of them in the checkpoint, and a rerun finds them.
    """
    connection, name = schema
    connection.execute(f"CREATE TABLE {name}.t (k varchar(5), v bigint)")
    connection.execute(
        f"CREATE TABLE {name}.dead (key bytea, value bytea, sink text, error text, source_topic "
        f"text, source_partition int, source_offset bigint, source_timestamp timestamptz, row_json "
        "text)"
    )
    sink, dead = (
        exactum.PostgresSink(postgres.url, table=f"{name}.{table}") for table in ("t", "dead")
    )

    def batch(**letters: Any) -> Any:
        return exactum.exactly_once(sink, decision_log=postgres.url, **letters)

    def values() -> list[int]:
        return [v for (v,) in connection.execute(f"SELECT v FROM {name}.t ORDER BY v")]

    text = run(spark, tmp_path, ROWS, batch()) or ""
    assert "[ROWS_REFUSED]" in text and "'k'" in text
    assert postgres.password not in text
    assert values() == []
    assert run(spark, tmp_path, ROWS, batch(dead_letters=dead)) is None
    ((value, row_json),) = connection.execute(f"SELECT value, row_json FROM {name}.dead").fetchall()
    assert json.loads(bytes(value)) == {"k": "much too long", "v": 2}
    assert row_json == bytes(value).decode()
    assert values() == [1, 3]
    forget_last_batch(tmp_path / "checkpoint")
    more: list[dict[str, object]] = [{"k": "more", "v": 4}]
    assert run(spark, tmp_path, more, batch(dead_letters=dead), files="b") is None
    assert values() == [1, 3, 4]
    assert not (tmp_path / "checkpoint" / "exactum" / "decisions").exists()
    query_id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    counted = "SELECT count(*) FROM exactum_decisions WHERE query_id = %s"
    ((records,),) = connection.execute(counted, [query_id]).fetchall()
    assert records >= 2
