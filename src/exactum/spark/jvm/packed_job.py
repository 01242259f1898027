"""A job that hands arrays of bytes to a function in Python workers, one array after the other
(PythonRDD.scala): nothing copies them into rows or Arrow on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.core.rdd import _prepare_for_python_RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import SparkSession

from exactum.spark.jvm.java_class import java_class

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
