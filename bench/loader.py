"""One run of one contender: a fresh driver that brings files of narrow rows into a table or a
folder, and ends.

Usage: python -m bench.loader NAME KIND TARGET INPUT CHECKPOINT [FILES]. KIND is postgres, mariadb,
files, delta or iceberg; TARGET a URL with a database that has the table ``rows``, or a folder;
FILES how many of the input each micro-batch reads. A process of its own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame

import exactum
from exactum.java import jars
from tests.kit.spark.more_jars import delta_jars

EXACTUM, BULK, JDBC = "exactum", "plain bulk load", "Spark's JDBC append"
FILES, SPARK_FILES = "exactum files", "Spark's Parquet sink"
ICEBERG, ICEBERG_BY_HAND = "exactum Iceberg", "pyiceberg by hand"
DELTA, SPARK_DELTA, DELTA_BY_HAND = "exactum Delta", "Spark's Delta sink", "delta-rs by hand"
TABLE = "bench_rows"
ICEBERG_TABLE = "bench.rows"
SCHEMA = "a long, b long, c string"

DRIVERS = {
    "postgres": ("org.postgresql", "postgresql", "42.7.4", "org.postgresql.Driver"),
    "mariadb": ("org.mariadb.jdbc", "mariadb-java-client", "3.4.1", "org.mariadb.jdbc.Driver"),
}


def driver_jars(kind: str) -> list[str]:
    """The JDBC driver, by Ivy."""
    org, name, version, _ = DRIVERS[kind]
    recipe = jars.recipe(jars.dependency(org, name, version))
    return [
        str(jar)
        for jar in jars.cached(
            jars.JarSet(f"jdbc-{kind}", version, f"{kind}'s JDBC driver", recipe)
        )
    ]


def main(
    name: str, kind: str, target: str, source: str, checkpoint: str, files: str = "1000"
) -> None:
    began_s = time.perf_counter()
    exactums = name in (EXACTUM, FILES, DELTA, ICEBERG)
    conf: dict[str, Any] = {
        "spark.exactum.warmWorkers": name not in (JDBC, SPARK_FILES, SPARK_DELTA),
        "spark.sql.streaming.numRecentProgressUpdates": 10_000,
    }
    if name == JDBC:
        conf["spark.jars"] = ",".join(driver_jars(kind))
    if name == SPARK_DELTA:
        conf["spark.jars"] = ",".join(delta_jars())
        conf["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        conf["spark.sql.catalog.spark_catalog"] = catalog
        # Delta takes 50 tasks for a snapshot otherwise, also for a table of one file.
        conf["spark.databricks.delta.snapshotPartitions"] = "2"
    spark = exactum.local_session("bench", master="local[2]", **conf)
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).parquet(source)
    writer = frame.writeStream.trigger(availableNow=True)
    if exactums:
        query: Any = exactly_once(name, kind, target).start(writer, checkpoint=checkpoint)
    else:
        plain = writer.option("checkpointLocation", checkpoint)
        if name in (SPARK_FILES, SPARK_DELTA):
            plain = plain.format("parquet" if name == SPARK_FILES else "delta")
            query = plain.option("path", target).start()
        else:
            query = plain.foreachBatch(function(name, kind, target)).start()
    query.awaitTermination()
    batches_ms = [p["durationMs"]["triggerExecution"] for p in query.recentProgress]
    print(json.dumps({"seconds": time.perf_counter() - began_s, "batches_ms": batches_ms}))
    spark.stop()


def exactly_once(name: str, kind: str, target: str) -> Any:
    if name == FILES:
        return exactum.exactly_once(exactum.FileSink(target))
    if name == DELTA:
        return exactum.exactly_once(exactum.DeltaSink(target))
    if name == ICEBERG:
        return exactum.exactly_once(exactum.IcebergSink(ICEBERG_TABLE, catalog=catalog_at(target)))
    sink = exactum.PostgresSink if kind == "postgres" else exactum.MySQLSink
    return exactum.exactly_once(sink(target, table=TABLE))


def function(name: str, kind: str, target: str) -> Callable[[DataFrame, int], None]:
    if name == JDBC:
        return lambda frame, _: append_by_jdbc(frame, kind, target)
    if name == DELTA_BY_HAND:
        return lambda frame, _: append_by_delta_rs(frame, target)
    if name == ICEBERG_BY_HAND:
        return lambda frame, _: append_by_pyiceberg(frame, target)
    load = CopyIn(target) if kind == "postgres" else LoadData(target)
    return lambda frame, _: print(frame.mapInArrow(load, "n long").collect(), file=sys.stderr)


def append_by_jdbc(frame: DataFrame, kind: str, target: str) -> None:
    """With the drivers' own batching on, as anybody who cares for speed has it."""
    parts = urlsplit(target)
    # Spark quotes names as MySQL wants them only for this scheme, which MariaDB's driver takes when
    # it is told to.
    scheme, suffix = ("postgresql", "") if kind == "postgres" else ("mysql", "?permitMysqlScheme")
    frame.write.format("jdbc").mode("append").options(
        url=f"jdbc:{scheme}://{parts.hostname}:{parts.port}{parts.path}{suffix}",
        dbtable=TABLE,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        driver=DRIVERS[kind][3],
        batchsize="10000",
        **({"reWriteBatchedInserts": "true"} if kind == "postgres" else {"useBulkStmts": "true"}),
    ).save()


def append_by_delta_rs(frame: DataFrame, target: str) -> None:
    """As its users write it: the micro-batch in the driver's memory. Guarantees nothing."""
    from deltalake import write_deltalake

    write_deltalake(target, frame.toArrow(), mode="append")


def catalog_at(folder: str) -> dict[str, str]:
    """A catalog of its own for each folder, in SQLite."""
    os.makedirs(folder, exist_ok=True)
    uri = f"sqlite:///{folder}/catalog.db"
    return {"name": "bench", "type": "sql", "uri": uri, "warehouse": f"file://{folder}"}


def append_by_pyiceberg(frame: DataFrame, target: str) -> None:
    """As ``append_by_delta_rs``."""
    from pyiceberg.catalog import load_catalog

    rows = frame.toArrow()
    catalog = load_catalog(**catalog_at(target))
    catalog.create_namespace_if_not_exists("bench")
    catalog.create_table_if_not_exists(ICEBERG_TABLE, rows.schema).append(rows)


class CopyIn:
    """A plain load of PostgreSQL as most would write it: one COPY for each task, from CSV that
    Arrow writes. Guarantees nothing.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import psycopg
        import pyarrow as pa
        from pyarrow import csv

        rows = 0
        with (
            psycopg.connect(self._url) as connection,
            connection.cursor() as cursor,
            cursor.copy(f"COPY {TABLE} (a, b, c) FROM STDIN WITH (FORMAT csv)") as copy,
        ):
            for batch in batches:
                out = pa.BufferOutputStream()
                csv.write_csv(batch, out, csv.WriteOptions(include_header=False))
                copy.write(out.getvalue().to_pybytes())
                rows += batch.num_rows
        yield pa.record_batch({"n": [rows]})


class LoadData:
    """The best plain load of MariaDB: one LOAD DATA LOCAL INFILE for each task. Guarantees
    nothing.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pymysql
        from pyarrow import csv

        parts = urlsplit(self._url)
        rows = 0
        with tempfile.NamedTemporaryFile(suffix=".csv") as file:
            for batch in batches:
                csv.write_csv(batch, file, csv.WriteOptions(include_header=False))
                rows += batch.num_rows
            file.flush()
            os.chmod(file.name, 0o644)
            connection = pymysql.connect(
                host=parts.hostname,
                port=parts.port or 3306,
                user=unquote(parts.username or ""),
                password=unquote(parts.password or ""),
                database=parts.path.strip("/"),
                local_infile=True,
            )
            with connection, connection.cursor() as cursor:
                cursor.execute(
                    f"LOAD DATA LOCAL INFILE '{file.name}' INTO TABLE {TABLE} CHARACTER SET "
                    "utf8mb4 FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' (a, b, c)"
                )
                connection.commit()
        yield pa.record_batch({"n": [rows]})


if __name__ == "__main__":
    main(*sys.argv[1:])
