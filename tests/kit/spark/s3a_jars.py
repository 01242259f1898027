"""Hadoop's own client for S3, for the Spark that is installed."""

from __future__ import annotations

from exactum.java import jars


def s3a_jars() -> list[str]:
    """hadoop-aws and the AWS SDK that it wants, without what Spark has itself. Of the version of
    Spark's Hadoop: half a gigabyte, once.
    """
    (client,) = jars.pyspark_jars().glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    recipe = jars.recipe(jars.dependency("org.apache.hadoop", "hadoop-aws", version))
    found = jars.cached(jars.JarSet("hadoop-aws", version, "Hadoop's client for S3", recipe))
    shipped = {jars.artifact_name(jar.name) for jar in jars.pyspark_jars().glob("*.jar")}
    return [str(jar) for jar in found if jars.artifact_name(jar.name) not in shipped]
