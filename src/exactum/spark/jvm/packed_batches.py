"""Micro-batches whose records come packed: the driver half, in the JVM (PackedBatches.java)."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exactum.spark.jvm.collecting import Tasks
from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.java_class import is_there, java_class
from exactum.spark.jvm.packed_job import PackedJob

CLASS = "exactum.PackedBatches"


def listed_jars(session: SparkSession) -> list[str]:
    """The jars that Spark gives to every executor, as URLs.

    Raises:
        JvmError: the JVM does not answer.
    """
    plain: Any = session
    return str(plain.sparkContext._jsc.sc().listJars().mkString("\n")).split("\n")


class PackedBatches:
    """Those of one run of a query."""

    def __init__(self, session: SparkSession, execution: Execution) -> None:
        self._batches = java_class(session, CLASS)
        self._execution = execution

    def are_there(self) -> bool:
        """Whether the driver's JVM has the class."""
        return is_there(self._batches)

    def layout(self, frame: DataFrame) -> str | None:
        """How the rows of ``frame`` are unpacked, as PackedBatches.java says. None where they are
        more than columns of the records that the batch at hand reads from one source that is read
        in columns.

        Raises:
            JvmError: Spark does not answer, or has no such classes.
        """
        plain: Any = frame
        found = self._batches.layout(plain._jdf, self._execution.last_execution())
        return None if found is None else str(found)

    def texts(
        self, frame: DataFrame, layout: str, job: PackedJob, tasks: Tasks, order: tuple[str, str]
    ) -> list[str] | None:
        """What the job's tasks return that are given the rows of ``frame``; None where these have
        another layout. ``order``: a local property of the tasks, and its value.

        Raises:
            Exception: Spark's error, inside of Java's ExecutionException.
        """
        plain: Any = frame
        batch = self._execution.last_execution()
        number = tasks.number or 0
        lines = self._batches.written(plain._jdf, batch, layout, job.function, number, *order)
        return None if lines is None else str(lines).split("\n") if lines else []
