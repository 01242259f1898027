"""The JVM of this driver: whether it answers, and its end (SparkContext.scala)."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass
from pyspark import SparkContext


def ping() -> None:
    """Return once the JVM of the session that is active has answered; at once without one.

    Raises:
        JvmError: it does not.
    """
    context: Any = SparkContext._active_spark_context
    if context is not None:
        JavaClass("java.lang.System", context._gateway._gateway_client).nanoTime()


def has_started() -> bool:
    """Whether there is one, of this process or one that Spark was told to use."""
    return SparkContext._gateway is not None


def has_context() -> bool:
    """Whether Spark runs in this process: its jars and what its JVM was started with stay."""
    return has_started() and SparkContext._active_spark_context is not None
