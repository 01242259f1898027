"""What this driver's JVM calls when it is told to end (Hadoop's ShutdownHookManager.java, Spark's
ShutdownHookManager.scala).

The JVM runs all hooks that it knows at once. Spark's are hooks of Hadoop's manager, which runs
those of a higher priority first, each for as long as it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from pyspark import java_gateway

from exactum.spark.jvm.java_class import JvmError, java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRIORITY = 100
"""Spark's have 40 together, and Hadoop's file systems are closed at 10."""


class ShutdownHook:
    """``call`` is called in a thread of its own, before Spark stops, and given ``timeout_s``."""

    def __init__(self, session: SparkSession, call: Callable[[], None], timeout_s: int) -> None:
        """
        Raises:
            JvmError: the JVM ends already, or does not answer.
        """
        plain, gateway = cast("Any", session), cast("Any", java_gateway)
        gateway.ensure_callback_server_started(plain.sparkContext._gateway)
        # A task keeps what it raises: where Python is gone there is nobody to call, nor to tell.
        task = java_class(session, "java.util.concurrent.FutureTask")
        self._task = task(_Runnable(call), None)
        self._hooks = java_class(session, "org.apache.hadoop.util.ShutdownHookManager").get()
        seconds = java_class(session, "java.util.concurrent.TimeUnit").SECONDS
        self._hooks.addShutdownHook(self._task, PRIORITY, timeout_s, seconds)

    def remove(self) -> None:
        """Idempotent. A JVM that is gone, or ends, has nothing to remove."""
        try:
            self._hooks.removeShutdownHook(self._task)
        except (JvmError, OSError):
            return


class _Runnable:
    """What py4j gives the JVM as a ``java.lang.Runnable``."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def run(self) -> None:
        self._call()

    class Java:
        """py4j reads which interfaces an object has."""

        implements = ("java.lang.Runnable",)
