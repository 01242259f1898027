"""Tables that exactum and Spark's own writers and readers share, on whatever PySpark is installed
(`make tables`): Delta's Spark jar reads what `DeltaSink` wrote, `DeltaSink` writes to a table that
Spark made, and `SparkTableSink` has Spark write, killed on its way. Iceberg's jar reads what
`IcebergSink` wrote, on the Sparks that it is made for. DuckDB reads each of these tables as well.

    python tables.py                 every cell; ends with 1 where one is not as it should be
    python tables.py CELL ...        these
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.kit.spark.more_jars import DELTA, delta_jars, iceberg_jars

BATCHES, ROWS = 4, 50
LIFE_TIMEOUT_S = 600
BEGAN_S = 1_700_000_000
COLUMNS = "id bigint, day date, at timestamp, price decimal(12,3), tags array<string>, blob binary"
MADE = (
    "id",
    "date_add(DATE '2026-11-01', CAST(id % 3 AS int)) AS day",
    "timestamp_micros(1700000000000000 + id * 1000001) AS at",
    "CAST(id / 7 AS decimal(12,3)) AS price",
    "IF(id % 5 = 0, NULL, array(CAST(id AS string), NULL)) AS tags",
    "IF(id % 4 = 0, NULL, CAST(CAST(id AS string) AS binary)) AS blob",
)


def session() -> Any:
    """With Delta's jars and Iceberg's, of the Spark that is installed."""
    import exactum

    settings = {
        "spark.jars": ",".join([*delta_jars(), *iceberg_jars()]),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    spark = exactum.local_session("tables", master="local[2]", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


# ---- a life: a process that runs one query ---------------------------------------------------


def live(spec: dict[str, Any]) -> None:
    """Run the query of ``spec`` to the end of what is there."""
    import exactum

    spark = session()
    folder = Path(spec["folder"])
    rows = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
    frame = rows.parquet(str(folder / "in")).selectExpr(*MADE)
    table = str(folder / "table")
    if spec["sink"] == "spark":
        sink: Any = exactum.SparkTableSink(SparkWrites(table, spec.get("kill", "")), name="table")
    elif spec["sink"] == "iceberg":
        parts = ["bucket(4, id)", "day(at)"]
        catalog = catalog_at(folder)
        sink = exactum.IcebergSink(ICEBERG_TABLE, catalog=catalog, partition_by=parts, sort_by="id")
    else:
        keys: dict[str, Any] = {"mode": "upsert", "key": "id"} if spec["sink"] == "upsert" else {}
        if keys:
            frame = frame.withColumn("id", frame.id % ROWS)
        sink = exactum.DeltaSink(table, **keys)
    once = exactum.exactly_once(sink)
    writer = frame.writeStream.trigger(availableNow=True)
    once.start(writer, checkpoint=str(folder / "checkpoint")).awaitTermination()


ICEBERG_TABLE = "shop.rows"


def catalog_at(folder: Path) -> dict[str, str]:
    uri = f"sqlite:///{folder}/catalog.db"
    return {"name": "lake", "type": "sql", "uri": uri, "warehouse": f"file://{folder}/warehouse"}


class SparkWrites:
    """Appends by Spark's own Delta, and kills the driver in the first life before or after it."""

    def __init__(self, table: str, kill: str) -> None:
        self._table, self._kill, self._calls = table, kill, 0

    def __call__(self, frame: Any, txn: Any) -> None:
        self._calls += 1
        if self._kill == "before" and self._calls == 2:
            os.killpg(0, signal.SIGKILL)
        writer = frame.write.format("delta").mode("append")
        writer = writer.option("txnAppId", txn.app_id).option("txnVersion", txn.version)
        writer.save(self._table)
        if self._kill == "after" and self._calls == 2:
            os.killpg(0, signal.SIGKILL)


# ---- the cells -------------------------------------------------------------------------------


def give(folder: Path, batches: range) -> None:
    """Files of numbers, one for each micro-batch."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "in").mkdir(exist_ok=True)
    for batch in batches:
        numbers = pa.table({"id": pa.array(range(batch * ROWS, (batch + 1) * ROWS), pa.int64())})
        path = folder / "in" / f"{batch}.parquet"
        pq.write_table(numbers, path)
        os.utime(path, (BEGAN_S + batch, BEGAN_S + batch))  # Spark takes the oldest first


def life(folder: Path, **spec: str) -> int:
    """Run one life, and return its exit status."""
    command = [sys.executable, __file__, "live", json.dumps({"folder": str(folder), **spec})]
    with (folder / "life.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        return process.wait(LIFE_TIMEOUT_S)


def wanted(spark: Any, numbers: range) -> list[Any]:
    return in_order(spark.range(numbers.start, numbers.stop).selectExpr(*MADE))


def in_order(frame: Any) -> list[Any]:
    return list(frame.orderBy("id").toArrow().to_pylist())


def by_duckdb(scan: str, *extensions: str) -> list[Any]:
    """Its extensions come as packages, so none is fetched."""
    import duckdb

    with duckdb.connect() as connection:
        for name in extensions:
            packages = Path(duckdb.__file__).parents[1]
            (found,) = packages.glob(f"duckdb_ext/extensions/*/*/{name}.duckdb_extension")
            connection.load_extension(str(found))
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.sql(f"SELECT * FROM {scan} ORDER BY id").fetch_arrow_table()
    return list(rows.to_pylist())


def check_table(spark: Any, folder: Path, expected: list[Any], when: str = "") -> None:
    """What Spark and DuckDB read of a Delta table."""
    place = folder / "table"
    check(in_order(spark.read.format("delta").load(str(place))) == expected, f"other rows{when}")
    check(by_duckdb(f"delta_scan('{place}')", "delta") == expected, f"DuckDB: other rows{when}")


def read_back(spark: Any, folder: Path) -> None:
    """Spark reads what DeltaSink wrote; then each appends once more."""
    give(folder, range(BATCHES))
    check(life(folder, sink="append") == 0, "the query failed")
    check_table(spark, folder, wanted(spark, range(BATCHES * ROWS)))
    place = str(folder / "table")
    more = spark.range(BATCHES * ROWS, (BATCHES + 1) * ROWS).selectExpr(*MADE)
    more.write.format("delta").mode("append").save(place)
    spark.sql(f"OPTIMIZE delta.`{place}`")
    give(folder, range(BATCHES + 1, BATCHES + 3))
    check(life(folder, sink="append") == 0, "the second life failed")
    check_table(spark, folder, wanted(spark, range((BATCHES + 3) * ROWS)), ", later")


def made_by_spark(spark: Any, folder: Path) -> None:
    """DeltaSink appends to a partitioned table that Spark's Delta made, with checkpoints."""
    place = folder / "table"
    spark.sql(
        f"CREATE TABLE delta.`{place}` ({COLUMNS}) USING delta PARTITIONED BY (day) "
        "TBLPROPERTIES ('delta.checkpointInterval' = '3')"
    )
    for batch in range(4):
        rows = spark.range(batch * ROWS, (batch + 1) * ROWS).selectExpr(*MADE)
        rows.write.format("delta").mode("append").save(str(place))
    give(folder, range(4, 4 + BATCHES))
    check(life(folder, sink="append") == 0, "the query failed")
    check_table(spark, folder, wanted(spark, range((4 + BATCHES) * ROWS)))


def upserted(spark: Any, folder: Path) -> None:
    """Spark reads the newest row of each key."""
    give(folder, range(BATCHES))
    check(life(folder, sink="upsert") == 0, "the query failed")
    last = spark.range((BATCHES - 1) * ROWS, BATCHES * ROWS).selectExpr(*MADE)
    check_table(spark, folder, in_order(last.withColumn("id", last.id % ROWS)))


def spark_writes(spark: Any, folder: Path) -> None:
    """SparkTableSink, killed before Spark's write and after it: each micro-batch once."""
    for number, kill in enumerate(("before", "after", "")):
        give(folder, range(number * BATCHES, (number + 1) * BATCHES))
        status = life(folder, sink="spark", kill=kill)
        check(status == (-signal.SIGKILL if kill else 0), f"ended with {status}, {kill}")
    check_table(spark, folder, wanted(spark, range(3 * BATCHES * ROWS)))


def iceberg(spark: Any, folder: Path) -> None:
    """DuckDB reads what IcebergSink wrote. So does Iceberg's Spark jar, where there is one for this
    Spark, and finds single rows by their statistics.
    """
    from pyiceberg.catalog import load_catalog

    give(folder, range(BATCHES))
    check(life(folder, sink="iceberg") == 0, "the query failed")
    place = load_catalog(**catalog_at(folder)).load_table(ICEBERG_TABLE).metadata_location
    place = place.removeprefix("file://")
    expected = wanted(spark, range(BATCHES * ROWS))
    found = by_duckdb(f"iceberg_scan('{place}')", "avro", "iceberg")
    check(found == expected, "DuckDB: other rows")
    if not iceberg_jars():
        return
    table = spark.read.format("iceberg").load(place)
    check(in_order(table) == expected, "other rows")
    for number in (0, 77, BATCHES * ROWS - 1):
        found = in_order(table.where(f"id = {number}"))
        check(found == wanted(spark, range(number, number + 1)), f"row {number} is not found")


class NotSo(Exception):
    """Something is not as it should be."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise NotSo(what)


CELLS: dict[str, Callable[[Any, Path], None]] = {
    "read-back": read_back,
    "made-by-spark": made_by_spark,
    "upserted": upserted,
    "spark-writes": spark_writes,
    "iceberg": iceberg,
}


def main(names: list[str]) -> int:
    spark = session()
    failed = 0
    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("pyspark", "deltalake", "duckdb")
    )
    print(f"Tables with {versions}, Delta's Spark jar {DELTA}", flush=True)
    for name in names or CELLS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                CELLS[name](spark, Path(folder))
                print(f"{name}: as it should be", flush=True)
            except (NotSo, subprocess.TimeoutExpired) as error:
                failed += 1
                log = Path(folder, "life.log").read_text(errors="replace")[-3000:]
                print(f"{name}: {error}\n{log}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["live"]:
        live(json.loads(sys.argv[2]))
    else:
        raise SystemExit(main(sys.argv[1:]))
