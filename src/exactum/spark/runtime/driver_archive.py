"""The archive of a Spark driver's classes, which ``exactum local class-archive`` makes."""

from __future__ import annotations

from pathlib import Path

from exactum.java.class_archive import ClassArchive, archive_of
from exactum.java.jars import pyspark_jars
from exactum.spark.runtime.carried_jar import kept_copy
from exactum.spark.runtime.checkpoint_fs import checkpoint_jar
from exactum.spark.runtime.columnar_kafka import columnar_kafka_jar
from exactum.spark.runtime.connector import spark_kafka_jars


def driver_class_path() -> list[Path]:
    """What a driver has on its class path besides PySpark's own jars.

    Raises LocalServerError if the connector's jars cannot be retrieved, or exactum's not be read.
    """
    return [*spark_kafka_jars(), kept_copy(checkpoint_jar()), kept_copy(columnar_kafka_jar())]


def spark_archive() -> ClassArchive:
    """The archive for the installed Java, PySpark, connector and exactum's own classes; it may not
    be made yet.

    Raises LocalServerError without Java, and as ``driver_class_path``.
    """
    return archive_of("spark", [*pyspark_jars().glob("*.jar"), *driver_class_path()])
