"""Where the archive of a local session's classes is kept, and which classes it is made of."""

from __future__ import annotations

from pathlib import Path

from exactum.java.class_archive import ClassArchive, archive_of
from exactum.java.jars import pyspark_jars
from exactum.spark.runtime.connector import spark_kafka_jars

CLASSES = Path(__file__).with_name("classes.txt.gz")
"""Of a streaming job, as ``make class-list`` records them."""


def spark_archive() -> ClassArchive:
    """The archive for the installed Java, PySpark and connector; it may not be made yet.

    Raises LocalServerError without Java, or if the jars cannot be retrieved.
    """
    jars = [*pyspark_jars().glob("*.jar"), *spark_kafka_jars()]
    return archive_of("driver", jars, made_of=CLASSES.read_bytes())
