"""Makes the jar of ``CheckpointFs.java``, which is kept beside it. Run as a module it replaces the
jar.

The same class files come out for Hadoop 3.4.1 to 3.5.0, which PySpark 4.0 to 4.2 have.
"""

from __future__ import annotations

from pathlib import Path

from exactum.java.jars import pyspark_jars
from exactum.spark.runtime.spark_jars import CHECKPOINT_FS_JAR
from tests.kit.spark.java_classes import make_jar

SOURCE = CHECKPOINT_FS_JAR.with_name("CheckpointFs.java")


def class_path() -> list[Path]:
    return list(pyspark_jars().glob("hadoop-client-api-*.jar"))


if __name__ == "__main__":
    make_jar(CHECKPOINT_FS_JAR, [SOURCE], class_path())
