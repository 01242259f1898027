"""Makes the jar of ``ColumnarKafka.java`` and its neighbours, which is kept beside them. Run as a
module it replaces the jar.
"""

from __future__ import annotations

from pathlib import Path

from exactum.java.jars import pyspark_jars
from exactum.spark.runtime.spark_jars import COLUMNAR_KAFKA_JAR, spark_kafka_jars
from tests.kit.spark.java_classes import make_jar

SOURCES = sorted(
    source
    for source in COLUMNAR_KAFKA_JAR.parent.glob("*.java")
    if source.name != "CheckpointFs.java"
)


def class_path() -> list[Path]:
    return [*sorted(pyspark_jars().glob("*.jar")), *spark_kafka_jars()]


if __name__ == "__main__":
    make_jar(COLUMNAR_KAFKA_JAR, SOURCES, class_path())
