"""A real Spark query whose rows are made to break the PostgreSQL sink, with dead letters in
PostgreSQL as well.
"""

from __future__ import annotations

import random
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import exactum
from tests.kit.abuse.frames import (
    BIGINT,
    DATE,
    INT,
    STRING,
    TIMESTAMP,
    array,
    bulk,
    decimal,
    struct_,
)
from tests.kit.abuse.kinds import Kind, Raw, unit
from tests.kit.abuse.postgres_oracle import canonical, found, holds, shown
from tests.kit.servers.postgres import LocalPostgres

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ROWS = 400
KINDS = {
    "n": (INT, "integer"),
    "value": (STRING, "text"),
    "day": (DATE, "date"),
    "at": (TIMESTAMP, "timestamp with time zone"),
    "amount": (decimal(9, 2), "numeric(7,1)"),
    "texts": (array(STRING), "character varying(3)[]"),
    "small": (BIGINT, "smallint"),
    "whole": (
        struct_({"text": STRING, "day": DATE, "at": TIMESTAMP, "amount": decimal(9, 2)}),
        "jsonb",
    ),
}
"""The frame's columns, and the table's type of each."""
VIEW = (
    "n", "CAST(raw AS STRING) AS value", "date_from_unix_date(days) AS day", "timestamp_micros(micros) AS at", "amount",
    "transform(raws, x -> CAST(x AS STRING)) AS texts", "small",
    "named_struct('text', CAST(raw AS STRING), 'day', date_from_unix_date(days), 'at', "
    "timestamp_micros(micros), 'amount', amount) AS whole",
)  # fmt: skip
PLAIN = (
    "named_struct('text', CAST(raw AS STRING), 'day', date_from_unix_date(days), 'amount', "
    "amount, 'raw', raw, 'small', small, 'third', small / 3, 'single', CAST(small / 7 AS float), "
    "'texts', transform(raws, x -> CAST(x AS STRING)), 'map', map(coalesce(small, 0), amount), "
    "'yes', small > 0, 'nan', array(double('NaN'), double('-Infinity'), null))"
)
"""What Spark's to_json and the sink must write alike; instants are none of it (docs/targets.md)."""


def rows_of(seed: int) -> list[tuple[Raw, ...]]:
    """Raw values in the order of ``KINDS``: mostly plain, and some of everything odd."""
    rng = random.Random(seed)
    names = ["value", "day", "at", "amount", "texts", "small"]
    drawn = bulk(names, [KINDS[name][0] for name in names], ROWS, rng, edge_share=0.06)
    rows = []
    for n in range(ROWS):
        value, day, at, amount, texts, small = drawn.row(n)
        if amount is not None and rng.random() < 0.9:
            amount = unit(KINDS["amount"][0], int(amount) * 100)  # no second digit
        short = None if texts is None or rng.random() < 0.5 else [t and t[:1] for t in texts]
        rows.append(
            (n, value, day, at, amount, short, small and small % 1000, (value, day, at, amount))
        )
    return rows


def written_as_parquet(rows: list[tuple[Raw, ...]], path: Path) -> None:
    """What Spark makes of it again is the same, whatever it is."""
    columns = list(zip(*rows, strict=True))
    arrays = {
        "n": pa.array(columns[0], pa.int32()),
        "raw": pa.array(columns[1], pa.binary()),
        "days": pa.array(columns[2], pa.int32()),
        "micros": pa.array(columns[3], pa.int64()),
        "amount": pa.array(columns[4], pa.decimal128(9, 2)),
        "raws": pa.array(columns[5], pa.list_(pa.binary())),
        "small": pa.array(columns[6], pa.int64()),
    }
    pq.write_table(pa.table(arrays), path)


def test_every_row_of_a_query_is_kept_or_put_aside(
    spark: SparkSession, postgres: LocalPostgres, tmp_path: Path
) -> None:
    """In a session of New York: no worker raises, the query ends, and each row is in one of the
    tables, unaltered.
    """
    seed = random.SystemRandom().randrange(2**32)
    rows = rows_of(seed)
    (tmp_path / "in").mkdir()
    written_as_parquet(rows, tmp_path / "in" / "rows.parquet")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS odd_rows, odd_dead")
            listed = ", ".join(f"{name} {type_}" for name, (_, type_) in KINDS.items())
            listed += ", plain jsonb, by_spark jsonb, PRIMARY KEY (n)"
            connection.execute(f"CREATE TABLE odd_rows ({listed})".encode())
            schema = (
                "n int, raw binary, days int, micros bigint, amount decimal(9,2), raws "
                "array<binary>, small bigint"
            )
            query = exactum.exactly_once(
                exactum.PostgresSink(postgres.url, table="odd_rows"),
                dead_letters=exactum.PostgresSink(
                    postgres.url, table="odd_dead", create_table=True
                ),
            ).start(
                spark.readStream.schema(schema)
                .parquet(str(tmp_path / "in"))
                .selectExpr(*VIEW, f"{PLAIN} AS plain", f"to_json({PLAIN}) AS by_spark")
                .writeStream.trigger(availableNow=True),
                checkpoint=tmp_path / "checkpoint",
            )
            query.awaitTermination()
            expressions = ", ".join(shown(type_, name) for name, (_, type_) in KINDS.items())
            stored = {
                int(r[0]): r
                for r in connection.execute(f"SELECT {expressions} FROM odd_rows".encode())
            }
            dead = connection.execute("SELECT value, error FROM odd_dead").fetchall()
            other = connection.execute(
                "SELECT plain, by_spark FROM odd_rows WHERE plain IS DISTINCT FROM by_spark"
            )
            assert other.fetchall() == []
            connection.execute("DROP TABLE odd_rows, odd_dead")
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    put_aside = {
        int(error.partition("the row with n=")[2].partition(":")[0]): value for value, error in dead
    }
    print(f"PostgreSQL, a Spark query, seed {seed}: {len(stored)} stored, {len(dead)} put aside")
    assert len(put_aside) == len(dead) and not stored.keys() & put_aside.keys()
    assert (
        stored.keys() | put_aside.keys() == set(range(ROWS)) and len(stored) > 50 and len(dead) > 50
    )
    for row in rows:
        compare(seed, row, stored.get(row[0]), put_aside)


def compare(
    seed: int, row: tuple[Raw, ...], there: tuple[str, ...] | None, put_aside: dict[int, bytes]
) -> None:
    """A row is stored if every column can hold its value, and then as it was; else its text is
    kept as it was.
    """
    n, what = row[0], f"seed {seed}, row {row!r}: {there!r}"
    columns: list[tuple[Kind, str]] = list(KINDS.values())
    good = all(holds(kind, type_, value) for (kind, type_), value in zip(columns, row, strict=True))
    assert (there is not None) == good, what
    if there is None:
        assert put_aside[n] == row[1], what
        return
    for (kind, type_), text, value in zip(columns, there, row, strict=True):
        assert found(type_, text) == canonical(kind, type_, value), what
