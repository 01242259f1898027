"""Where the archive of a local session's classes is kept."""

from __future__ import annotations

from exactum.java.class_archive import ClassArchive, archive_of
from exactum.java.jars import pyspark_jars
from exactum.spark.runtime.connector import spark_kafka_jars


def spark_archive() -> ClassArchive:
    """The archive for the installed Java, PySpark and connector; it may not be made yet.

    Raises LocalServerError without Java, or if the jars cannot be retrieved.
    """
    return archive_of("driver", [*pyspark_jars().glob("*.jar"), *spark_kafka_jars()])
