"""Micro-batches whose records come packed, past Spark's rows: the driver half
(PackedBatches.java), and a job that hands arrays of bytes to Python workers, one after the other
(PythonRDD.scala): nothing copies them into rows or Arrow on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.core.rdd import _prepare_for_python_RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession

from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.frames import Tasks
from exactum.spark.jvm.java_class import is_there, java_class

Task = Callable[[int, Iterator[bytes]], Iterator[bytes]]
"""From the number of a partition and its arrays to UTF-8 texts, none empty, without a line's end.
Picklable.
"""

_PYTHON = "org.apache.spark.api.python"
_EXECUTABLE = "spark.sql.execution.pyspark.python"
_SIMPLE = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"


class PackedJob:
    """The jobs of one task. What Spark and Python make of it is made once: ``function``."""

    def __init__(self, session: SparkSession, task: Task) -> None:
        context: Any = session.sparkContext
        self._session = session
        self._python_rdd = java_class(session, f"{_PYTHON}.PythonRDD")
        as_it_is = NoOpSerializer()
        command, broadcasts, environment, includes = _prepare_for_python_RDD(
            context, (task, None, as_it_is, as_it_is)
        )
        self.function = java_class(session, f"{_PYTHON}.SimplePythonFunction")(
            bytearray(command),
            {**environment, **_of_sql(session)},
            includes,
            # As Spark's own Arrow runners choose it (ArrowEvalPythonExec.scala).
            str(session.conf.get(_EXECUTABLE, "") or context.pythonExec),
            context.pythonVer,
            broadcasts,
            context._javaAccumulator,
        )

    def run_side_by_side(self, tasks: int) -> None:
        """Run so many tasks, each of which is given one array of one byte, and wait for them."""
        context: Any = self._session.sparkContext
        arrays = context._jsc.parallelize([bytearray(1)] * tasks, tasks)
        self._python_rdd(arrays.rdd(), self.function, False, False).asJavaRDD().count()


def _of_sql(session: SparkSession) -> dict[str, str]:
    """What Spark's SQL adds to its workers' environment. Workers serve jobs with the same one: so
    these serve both, and those that stand ready are taken.
    """
    simple = str(session.conf.get(_SIMPLE, "true")).lower() == "true"
    return {"SPARK_SIMPLIFIED_TRACEBACK": "1"} if simple else {}


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
