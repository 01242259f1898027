"""Jars beside Spark's own, for the Spark that is installed: of lakehouse formats and of Hadoop's client
for S3.
"""

from __future__ import annotations

from exactum.java import jars

DELTA = "4.4.0"
ICEBERG = {"4.0": "1.11.0", "4.1": "1.12.0"}
"""There is none for 4.2."""


def spark_minor() -> str:
    return ".".join(jars.pyspark_version().split(".")[:2])


def delta_jars() -> list[str]:
    """Delta's, and what it needs beside Spark's own jars."""
    return _beside_spark("io.delta", f"delta-spark_{spark_minor()}_2.13", DELTA)


def iceberg_jars() -> list[str]:
    """Iceberg's runtime; nothing where there is none for this Spark."""
    minor = spark_minor()
    if minor not in ICEBERG:
        return []
    name = f"iceberg-spark-runtime-{minor}_2.13"
    return _beside_spark("org.apache.iceberg", name, ICEBERG[minor])


def s3a_jars() -> list[str]:
    """hadoop-aws and the AWS SDK that it wants, of the version of Spark's Hadoop: half a gigabyte,
    once.
    """
    (client,) = jars.pyspark_jars().glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    return _beside_spark("org.apache.hadoop", "hadoop-aws", version)


def _beside_spark(org: str, name: str, version: str) -> list[str]:
    recipe = jars.recipe(jars.dependency(org, name, version))
    found = jars.cached(jars.JarSet(name, version, name, recipe))
    shipped = {jars.artifact_name(jar.name) for jar in jars.pyspark_jars().glob("*.jar")}
    return [str(jar) for jar in found if jars.artifact_name(jar.name) not in shipped]
