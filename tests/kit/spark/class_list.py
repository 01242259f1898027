"""Records which classes the JVM of a streaming job loads, for the list in the wheel that a class
archive is made from. Run as a module it replaces the list.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count

import exactum
from exactum.java.jars import SILENCE
from exactum.java.program import spark_java_options
from exactum.local import LocalKafka
from exactum.spark.startup.class_archive import CLASSES, OPTIONS

ELSEWHERE = re.compile(r"exactum/|\S*\$Proxy\d|jdk/jfr/internal/handlers/|\S*/GeneratedClass\$")
"""Classes of jars that are not on the class path, and of no jar at all."""
SPUN = "[SPECIES_RESOLVE]"
"""What a JVM makes up as it dumps. With an agent or a flight recorder, which look at every class
file, a JVM of Java 17 looks for one of such a class in its archive, and dies of finding none
(hotspot's ``klassFactory.cpp``, ``check_shared_class_file_load_hook``)."""


def record(servers: str, folder: Path, recorded: Path) -> None:
    """Run a query, in this process, whose JVM writes the list; return when that has ended."""
    options = spark_java_options([f"-XX:DumpLoadedClassList={recorded}", SILENCE])
    spark = exactum.local_session("class list", master="local[2]", **{OPTIONS: options})
    produce(spark, servers)
    run(spark, servers, folder / "checkpoint")
    spark.stop()
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()  # what the JVM ends by
    gateway.proc.wait()


def produce(spark: SparkSession, servers: str) -> None:
    rows = spark.range(100).selectExpr(
        "cast(id % 7 as string) as key", "to_json(struct(id)) as value"
    )
    kafka = rows.write.format("kafka").option("kafka.bootstrap.servers", servers)
    kafka.option("topic", "in").save()


def run(spark: SparkSession, servers: str, checkpoint: Path) -> None:
    """Some epochs with state, from Kafka to Kafka."""
    records = exactum.read_kafka(
        spark, "in", bootstrap_servers=servers, start="earliest", maxOffsetsPerTrigger=25
    )
    counted = records.groupBy(col("key").cast("string")).agg(count("*").alias("n"))
    exact = exactum.exactly_once(exactum.KafkaSink("out", bootstrap_servers=servers))
    totals = counted.selectExpr("key", "cast(n as string) as value")
    writer = totals.writeStream.outputMode("update").trigger(availableNow=True)
    query = exact.start(writer, checkpoint=checkpoint)
    query.awaitTermination()


def kept(recorded: str) -> str:
    lines = (
        line for line in recorded.splitlines() if not ELSEWHERE.match(line) and SPUN not in line
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="exactum-class-list-") as name, LocalKafka() as kafka:
        for topic in ("in", "out"):
            kafka.create_topic(topic, partitions=2)
        folder = Path(name)
        recorded = folder / "classes.txt"
        command = [sys.executable, "-m", __spec__.name, kafka.bootstrap_servers]
        subprocess.run([*command, str(folder), str(recorded)], check=True)
        packed = gzip.compress(kept(recorded.read_text()).encode(), mtime=0)
        CLASSES.write_bytes(packed)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        record(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
