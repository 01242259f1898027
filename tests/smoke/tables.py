"""Tables that exactum and Spark's own writers and readers share, on whatever PySpark is installed
(`make tables`): Delta's Spark jar reads what `DeltaSink` wrote, `DeltaSink` writes to a table that
Spark made, and `SparkTableSink` has Spark write, killed on its way. Iceberg's jar reads what
`IcebergSink` wrote, on the Sparks that it is made for. DuckDB reads each of these tables as well. See
``cell``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession

from tests.kit.spark.more_jars import DELTA, delta_jars, iceberg_jars
from tests.smoke import life
from tests.smoke.cell import BATCHES, ROWS, Cell, play

COLUMNS = "id bigint, day date, at timestamp, price decimal(12,3), tags array<string>, blob binary"


@cache
def settings() -> dict[str, str]:
    """With Delta's jars and Iceberg's, of the Spark that is installed."""
    return {
        "spark.jars": ",".join([*delta_jars(), *iceberg_jars()]),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.databricks.delta.snapshotPartitions": "1",
    }


@cache
def spark() -> SparkSession:
    """What reads the tables, and writes to them beside the queries."""
    return life.session({"session": settings()})


class Table(Cell):
    """A query into a table."""

    def __init__(self, folder: Path) -> None:
        uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
        self.catalog = {"name": "lake", "type": "sql", "uri": uri, "warehouse": warehouse}
        super().__init__(folder, session=settings(), catalog=self.catalog)
        self.place = str(folder / "table")

    def append(self, batch: int) -> None:
        """By Spark's own Delta."""
        rows = numbered(batch * ROWS, (batch + 1) * ROWS)
        rows.write.format("delta").mode("append").save(self.place)

    def check_table(self, expected: DataFrame) -> None:
        """What Spark and DuckDB read of a Delta table."""
        read = spark().read.format("delta").load(self.place)
        assert in_order(read) == in_order(expected), "other rows"
        assert by_duckdb(f"delta_scan('{self.place}')", "delta") == in_order(expected), "DuckDB"


def numbered(start: int, end: int) -> DataFrame:
    return spark().range(start, end).selectExpr(*life.TYPED)


def in_order(frame: DataFrame) -> list[Any]:
    return list(frame.orderBy("id").toArrow().to_pylist())


def by_duckdb(scan: str, *extensions: str) -> list[Any]:
    """Its extensions come as packages, so none is fetched."""
    with duckdb.connect() as connection:
        for name in extensions:
            packages = Path(duckdb.__file__).parents[1]
            (found,) = packages.glob(f"duckdb_ext/extensions/*/*/{name}.duckdb_extension")
            connection.load_extension(str(found))
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.sql(f"SELECT * FROM {scan} ORDER BY id").fetch_arrow_table()
    return list(rows.to_pylist())


def read_back(cell: Table) -> None:
    """Spark reads what DeltaSink wrote; then each appends once more."""
    cell.give(*range(BATCHES))
    cell.finishes("typed", table="delta")
    cell.check_table(numbered(0, BATCHES * ROWS))
    cell.append(BATCHES)
    spark().sql(f"OPTIMIZE delta.`{cell.place}`")
    cell.give(BATCHES + 1, BATCHES + 2)
    cell.finishes("typed", table="delta")
    cell.check_table(numbered(0, (BATCHES + 3) * ROWS))


def made_by_spark(cell: Table) -> None:
    """DeltaSink appends to a partitioned table that Spark's Delta made, with checkpoints."""
    spark().sql(
        f"CREATE TABLE delta.`{cell.place}` ({COLUMNS}) USING delta PARTITIONED BY (day) "
        "TBLPROPERTIES ('delta.checkpointInterval' = '3')"
    )
    for batch in range(4):
        cell.append(batch)
    cell.give(*range(4, 4 + BATCHES))
    cell.finishes("typed", table="delta")
    cell.check_table(numbered(0, (4 + BATCHES) * ROWS))


def upserted(cell: Table) -> None:
    """Spark reads the newest row of each key."""
    cell.give(*range(BATCHES))
    cell.finishes("upserted", table="delta")
    last = numbered((BATCHES - 1) * ROWS, BATCHES * ROWS)
    cell.check_table(last.withColumn("id", last.id % ROWS))


def spark_writes(cell: Table) -> None:
    """SparkTableSink, killed before Spark's write and after it: each micro-batch once."""
    for number, kill in enumerate(("before", "after", "")):
        cell.give(*range(number * BATCHES, (number + 1) * BATCHES))
        query = cell.begin("typed", table="spark", kill_write=kill)
        query.dies() if kill else query.finishes()
    cell.check_table(numbered(0, 3 * BATCHES * ROWS))


def iceberg(cell: Table) -> None:
    """DuckDB reads what IcebergSink wrote. So does Iceberg's Spark jar, where there is one for this
    Spark, and finds single rows by their statistics.
    """
    cell.give(*range(BATCHES))
    cell.finishes("typed", table="iceberg")
    place = load_catalog(**cell.catalog).load_table(life.ICEBERG_TABLE).metadata_location
    place = place.removeprefix("file://")
    expected = in_order(numbered(0, BATCHES * ROWS))
    assert by_duckdb(f"iceberg_scan('{place}')", "avro", "iceberg") == expected, "DuckDB"
    if not iceberg_jars():
        return
    table = spark().read.format("iceberg").load(place)
    assert in_order(table) == expected, "other rows"
    for number in (0, 77, BATCHES * ROWS - 1):
        found = in_order(table.where(f"id = {number}"))
        assert found == expected[number : number + 1], f"row {number} is not found"


CELLS: dict[str, Callable[[Table], None]] = {
    "read-back": read_back,
    "made-by-spark": made_by_spark,
    "upserted": upserted,
    "spark-writes": spark_writes,
    "iceberg": iceberg,
}


def main(*names: str) -> int:
    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("pyspark", "deltalake", "duckdb")
    )
    return play(f"{versions}, Delta's Spark jar {DELTA}", CELLS, Table, names)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
