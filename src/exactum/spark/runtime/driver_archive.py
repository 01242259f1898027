"""The archive of a Spark driver's classes, which ``exactum local class-archive`` makes."""

from __future__ import annotations

from exactum.java.class_archive import ClassArchive, archive_of
from exactum.java.jars import pyspark_jars
from exactum.spark.runtime.connector import spark_kafka_jars


def spark_archive() -> ClassArchive:
    """The archive for the installed Java, PySpark and connector; it may not be made yet.

    Raises LocalServerError without Java, or if the jars cannot be retrieved.
    """
    # Another name than of those that were made without the connector on the class path.
    return archive_of("session", [*pyspark_jars().glob("*.jar"), *spark_kafka_jars()])
