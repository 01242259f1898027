"""A real Spark query whose rows are made to break a database's sink, with dead letters in the same
database.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import exactum
from tests.kit.abuse.columns import Target
from tests.kit.abuse.frames import (
    BIGINT,
    BINARY,
    DATE,
    STRING,
    TIMESTAMP,
    Frame,
    array,
    decimal,
    seed_of_run,
    struct_,
)
from tests.kit.abuse.kinds import Kind, Raw
from tests.kit.abuse.sql_values import ZONE, Server, Tally, compare, drawn

pytestmark = pytest.mark.spark

ROWS = 300
WHOLE = struct_({"text": STRING, "day": DATE, "at": TIMESTAMP, "amount": decimal(9, 2)})
COLUMNS: dict[str, dict[str, Kind]] = {
    "PostgreSQL": {
        "text": STRING,
        "date": DATE,
        "timestamp with time zone": TIMESTAMP,
        "numeric(9,2)": decimal(38, 10),
        "character varying(3)[]": array(STRING),
        "smallint": BIGINT,
        "bytea": BINARY,
        "jsonb": WHOLE,
    },
    "MariaDB": {
        "varchar(9) CHARACTER SET utf8mb3": STRING,
        "date": DATE,
        "datetime(6)": TIMESTAMP,
        "decimal(9,2) unsigned": decimal(38, 10),
        "mediumint": BIGINT,
        "varchar(5) CHARACTER SET utf8mb4": STRING,
        "longblob": BINARY,
        "timestamp NULL": TIMESTAMP,
    },
}
"""The table's column, and the frame's type."""
PLAIN = (
    "named_struct('text', c0, 'day', c1, 'amount', c3, 'raw', c6, 'small', c5, 'third', c5 / 3, "
    "'single', CAST(c5 / 7 AS float), 'texts', c4, 'map', map(coalesce(c5, 0), c3), 'yes', c5 > 0, "
    "'nan', array(double('NaN'), double('-Infinity'), null))"
)
MORE = {"PostgreSQL": {"plain": PLAIN, "by_spark": f"to_json({PLAIN})"}, "MariaDB": {}}
"""What Spark's to_json and the sink must write alike; instants are none of it (docs/targets.md)."""


def stored_as(kind: Kind) -> pa.DataType:
    """What Parquet can hold of any raw value."""
    if kind.name == "array":
        return pa.list_(stored_as(kind.of[0]))
    if kind.name == "struct":
        return pa.struct([(n, stored_as(k)) for n, k in zip(kind.fields, kind.of, strict=True)])
    odd = {"string": pa.binary(), "date": pa.int32(), "timestamp": pa.int64()}
    return odd.get(kind.name) or kind.arrow()


def plain(kind: Kind, raw: Raw) -> object:
    """For ``pa.array`` of that type."""
    if raw is None or kind.name != "struct":
        return raw
    return dict(zip(kind.fields, raw, strict=True))


def restored(kind: Kind, text: str) -> str:
    """The expression by which a query makes a value of the type of that."""
    if kind.name == "array":
        return f"transform({text}, x -> {restored(kind.of[0], 'x')})"
    if kind.name == "struct":
        fields = zip(kind.fields, kind.of, strict=True)
        made = ", ".join(f"'{name}', {restored(k, f'{text}.{name}')}" for name, k in fields)
        return f"CASE WHEN {text} IS NOT NULL THEN named_struct({made}) END"
    made_by = {
        "string": "CAST({} AS STRING)",
        "date": "date_from_unix_date({})",
        "timestamp": "timestamp_micros({})",
    }
    return made_by.get(kind.name, "{}").format(text)


def write_parquet(frame: Frame, path: Path) -> str:
    """Returns its schema, for Spark."""
    arrays = [
        pa.array([plain(k, v) for v in values], stored_as(k))
        for k, values in zip(frame.kinds, frame.values, strict=True)
    ]
    path.mkdir()
    pq.write_table(pa.table(arrays, list(frame.names)), path / "rows.parquet")
    return str(path)


@pytest.fixture
def new_york(spark: SparkSession) -> Iterator[SparkSession]:
    """Where 9999-12-31 23:59:59 is a day that Python has not."""
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield spark
    spark.conf.unset("spark.sql.session.timeZone")


def test_every_row_of_a_query_is_kept_or_put_aside(
    new_york: SparkSession, server: Server, tmp_path: Path
) -> None:
    """No worker raises, the query ends, and each row is in the table as it was, or a dead letter
    that names it.
    """
    tally = Tally(seed_of_run())
    pairs: list[tuple[Target, Kind]] = [
        (server.target(declared), kind) for declared, kind in COLUMNS[server.name].items()
    ]
    frame = drawn(pairs, ROWS, random.Random(tally.seed))
    path = write_parquet(frame, tmp_path / "in")
    more = MORE[server.name]
    declared = [f"c{n} {target.declared}" for n, (target, _) in enumerate(pairs)]
    listed = ", ".join([*declared, *(f"{name} jsonb" for name in more)])
    database = server.database
    table = database.table(f"id bigint PRIMARY KEY, {listed}")
    sinks = exactum.exactly_once(
        database.sink(table), dead_letters=database.sink("odd_dead", create_table=True)
    )
    rows = new_york.readStream.schema(new_york.read.parquet(path).schema).parquet(path)
    made = [
        f"{restored(kind, name)} AS {name}"
        for name, kind in zip(frame.names, frame.kinds, strict=True)
    ]
    query = sinks.start(
        rows.selectExpr(*made)
        .selectExpr("*", *(f"{text} AS {name}" for name, text in more.items()))
        .writeStream.trigger(availableNow=True),
        checkpoint=tmp_path / "checkpoint",
    )
    query.awaitTermination()
    reasons: dict[int, str] = {}
    for (error,) in database.rows("SELECT error FROM odd_dead"):
        row = int(error.partition("the row with id=")[2].partition(":")[0])
        assert row not in reasons
        reasons[row] = error
    compare(server, table, [target for target, _ in pairs], frame, reasons, tally)
    print(server.name, tally)
    assert tally.counts["stored"] > ROWS / 10 and tally.counts["put aside"] > ROWS / 10
    if more:
        differing = "SELECT plain, by_spark FROM {} WHERE plain IS DISTINCT FROM by_spark"
        assert database.rows(differing.format(table)) == []
