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


def test_dead_letters_in_a_table(spark, postgres, schema, tmp_path: Path) -> None:
    """The whole row stands there as well."""
    connection, name = schema
    connection.execute(f"CREATE TABLE {name}.t (k varchar(5), v bigint)")
    connection.execute(
        f"CREATE TABLE {name}.dead (key bytea, value bytea, sink text, error text, source_topic "
        f"text, source_partition int, source_offset bigint, source_timestamp timestamptz, row_json "
        "text)"
    )
    sinks = [exactum.PostgresSink(postgres.url, table=f"{name}.{table}") for table in ("t", "dead")]
    assert run(spark, tmp_path, ROWS, exactum.exactly_once(sinks[0], dead_letters=sinks[1])) is None
    ((value, row_json),) = connection.execute(f"SELECT value, row_json FROM {name}.dead").fetchall()
    assert json.loads(bytes(value)) == {"k": "much too long", "v": 2}
    assert row_json == bytes(value).decode()


def test_without_dead_letters_the_query_stops_and_names_the_row(
    spark, postgres, schema, tmp_path: Path
) -> None:
    """Nothing of the epoch is in the table, and no password is in the text."""
    connection, name = schema
    connection.execute(f"CREATE TABLE {name}.t (k varchar(5) NOT NULL, v bigint)")
    text = run(
        spark,
        tmp_path,
        ROWS,
        exactum.exactly_once(exactum.PostgresSink(postgres.url, table=f"{name}.t")),
    )
    assert text is not None
    assert "[ROWS_REFUSED]" in text
    assert "'k'" in text
    assert postgres.password not in text
    assert connection.execute(f"SELECT count(*) FROM {name}.t").fetchone() == (0,)


def test_the_decision_log_may_be_in_a_database(spark, postgres, schema, tmp_path: Path) -> None:
    """decision_log="postgresql://...": the record is there, nothing of it in the checkpoint, and
    a rerun finds it.
    """
    connection, name = schema
    connection.execute(f"CREATE TABLE {name}.t (k text, v bigint)")
    sink = exactum.PostgresSink(postgres.url, table=f"{name}.t")
    exact = exactum.exactly_once(sink, decision_log=postgres.url)
    assert run(spark, tmp_path, ROWS, exact) is None
    forget_last_batch(tmp_path / "checkpoint")
    assert run(spark, tmp_path, [{"k": "more", "v": 4}], exact, files="b") is None
    assert connection.execute(f"SELECT v FROM {name}.t ORDER BY v").fetchall() == [
        (1,),
        (2,),
        (3,),
        (4,),
    ]
    assert not (tmp_path / "checkpoint" / "exactum" / "decisions").exists()
    query_id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    found = connection.execute(
        "SELECT count(*) FROM exactum_decisions WHERE query_id = %s", [query_id]
    ).fetchone()
    assert found is not None
    assert found[0] >= 2
