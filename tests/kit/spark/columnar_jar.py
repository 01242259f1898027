"""Makes the jar of ``ColumnarKafka.java`` and its neighbours, which is kept beside them. Run as a
module it replaces the jar.
"""

from __future__ import annotations

from pathlib import Path

from exactum.java.jars import pyspark_jars
from exactum.spark.runtime.columnar_kafka import JAR, SOURCES
from exactum.spark.runtime.connector import spark_kafka_jars
from tests.kit.spark.java_classes import make_jar


def class_path() -> list[Path]:
    return [*sorted(pyspark_jars().glob("*.jar")), *spark_kafka_jars()]


if __name__ == "__main__":
    make_jar(JAR, SOURCES, class_path())
