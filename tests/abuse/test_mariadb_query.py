"""A real Spark query whose rows are made to break the MariaDB sink, with dead letters in MariaDB
as well.
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
from tests.abuse.test_mariadb_rows import Tally, compare, drawn, seed_of_run
from tests.kit.abuse.frames import BIGINT, BINARY, DATE, STRING, TIMESTAMP, Frame, decimal
from tests.kit.abuse.mariadb_columns import TARGETS_AND_JSON, Target
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.sql.mysql_server import Database

ROWS = 300
BY_NAME = {target.declared: target for target in TARGETS_AND_JSON}
COLUMNS = (
    (BY_NAME["varchar(9) CHARACTER SET utf8mb3"], STRING, "CAST(c0 AS STRING) AS c0"),
    (BY_NAME["date"], DATE, "date_from_unix_date(c1) AS c1"),
    (BY_NAME["datetime(6)"], TIMESTAMP, "timestamp_micros(c2) AS c2"),
    (BY_NAME["decimal(9,2) unsigned"], decimal(38, 10), "c3"),
    (BY_NAME["mediumint"], BIGINT, "c4"),
    (BY_NAME["inet4"], STRING, "CAST(c5 AS STRING) AS c5"),
    (BY_NAME["longblob"], BINARY, "c6"),
    (BY_NAME["timestamp NULL"], TIMESTAMP, "timestamp_micros(c7) AS c7"),
)
"""The table's column, the frame's type, and how the query makes it of what Parquet can hold."""
SCHEMA = (
    "id bigint, c0 binary, c1 int, c2 bigint, c3 decimal(38,10), c4 bigint, c5 binary, c6 binary, "
    "c7 bigint"
)
TARGETS: list[Target] = [target for target, _, _ in COLUMNS]


@pytest.fixture
def database(mariadb: LocalMariaDB) -> Iterator[Database]:
    with Database.made(mariadb) as made:
        yield made


@pytest.fixture
def new_york(spark: SparkSession) -> Iterator[SparkSession]:
    """Where 9999-12-31 23:59:59 is a day that Python has not."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    spark.conf.unset("spark.sql.session.timeZone")


def written_as_parquet(frame: Frame, path: Path) -> None:
    kinds = [pa.int64(), pa.binary(), pa.int32(), pa.int64(), pa.decimal128(38, 10), pa.int64(), pa.binary(),
             pa.binary(), pa.int64()]  # fmt: skip
    arrays = [pa.array(values, kind) for values, kind in zip(frame.values, kinds, strict=True)]
    path.mkdir()
    pq.write_table(pa.table(arrays, list(frame.names)), path / "rows.parquet")


def test_every_row_of_a_query_is_kept_or_put_aside(
    new_york: SparkSession, database: Database, tmp_path: Path
) -> None:
    """No worker raises, the query ends, and each row is in the table as it was, or a dead letter
    that names it.
    """
    seed = seed_of_run()
    print(f"EXACTUM_SEED={seed}")
    tally = Tally(seed)
    frame = drawn([(target, kind) for target, kind, _ in COLUMNS], ROWS, random.Random(seed))
    written_as_parquet(frame, tmp_path / "in")
    declared = ", ".join(f"c{n} {target.declared}" for n, target in enumerate(TARGETS))
    database.run(f"CREATE TABLE t (id bigint PRIMARY KEY, {declared})")
    sinks = exactum.exactly_once(
        exactum.MySQLSink(database.url, table="t"),
        dead_letters=exactum.MySQLSink(database.url, table="dead", create_table=True),
    )
    frames = new_york.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    query = sinks.start(
        frames.selectExpr("id", *(made for _, _, made in COLUMNS)).writeStream.trigger(
            availableNow=True
        ),
        checkpoint=tmp_path / "checkpoint",
    )
    query.awaitTermination()
    reasons: dict[int, str] = {}
    for (error,) in database.run("SELECT error FROM dead"):
        row = int(error.partition("the row with id=")[2].partition(":")[0])
        assert row not in reasons
        reasons[row] = error
    compare(database, "t", TARGETS, frame, reasons, tally)
    print(tally)
    assert tally.counts["stored"] > ROWS / 10 and tally.counts["put aside"] > ROWS / 10
