"""A job that hands arrays of bytes to a function in Python workers, one array after the other
(PythonRDD.scala): nothing copies them into rows or Arrow on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.core.rdd import _prepare_for_python_RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import SparkSession

from exactum.spark.jvm.collecting import Tasks
from exactum.spark.jvm.java_class import java_class
from exactum.spark.jvm.packed_batches import CLASS

Task = Callable[[int, Iterator[bytes]], Iterator[bytes]]
"""From the number of a partition and its arrays to UTF-8 texts, none empty, without a line's end.
Picklable.
"""

_PYTHON = "org.apache.spark.api.python"
_EXECUTABLE = "spark.sql.execution.pyspark.python"
_SIMPLE = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"


class PackedJob:
    """The jobs of one task; what Spark and Python make of it is made once."""

    def __init__(self, session: SparkSession, task: Task) -> None:
        context: Any = session.sparkContext
        self._session = session
        self._python_rdd = java_class(session, f"{_PYTHON}.PythonRDD")
        self._batches = java_class(session, CLASS)
        as_it_is = NoOpSerializer()
        command, broadcasts, environment, includes = _prepare_for_python_RDD(
            context, (task, None, as_it_is, as_it_is)
        )
        self._function = java_class(session, f"{_PYTHON}.SimplePythonFunction")(
            bytearray(command),
            {**environment, **_of_sql(session)},
            includes,
            # As Spark's own Arrow runners choose it (ArrowEvalPythonExec.scala).
            str(session.conf.get(_EXECUTABLE, "") or context.pythonExec),
            context.pythonVer,
            broadcasts,
            context._javaAccumulator,
        )

    def texts(self, arrays: Any, tasks: Tasks) -> list[str]:
        """What the tasks return that are given these ``arrays``, a JavaRDD.

        Raises:
            Exception: Spark's error, inside of Java's ExecutionException.
        """
        return self.collected(arrays if tasks.number is None else arrays.coalesce(tasks.number))

    def collected(self, arrays: Any, *others: tuple[PackedJob, Any]) -> list[str]:
        """What the tasks return, in one job: this one's for ``arrays``, and the others' for theirs.

        Raises:
            Exception: as ``texts``.
        """
        whole = self._applied(arrays)
        for other, given in others:
            whole = whole.union(other._applied(given))
        # As in collected_briefly: the one action whose closure Spark need not search.
        lines = str(self._batches.lines(whole.collectAsync().get()))
        return lines.split("\n") if lines else []

    def given(self, text: bytes) -> Any:
        """A JavaRDD of one array, for one task."""
        context: Any = self._session.sparkContext
        return context._jsc.parallelize([bytearray(text)], 1)

    def run_side_by_side(self, tasks: int) -> None:
        """Run so many tasks, each of which is given one array of one byte, and wait for them."""
        context: Any = self._session.sparkContext
        arrays = context._jsc.parallelize([bytearray(1)] * tasks, tasks)
        self._applied(arrays).count()

    def _applied(self, arrays: Any) -> Any:
        """The JavaRDD of what the task makes of these ``arrays``, a JavaRDD; no job yet."""
        return self._python_rdd(arrays.rdd(), self._function, False, False).asJavaRDD()


def _of_sql(session: SparkSession) -> dict[str, str]:
    """What Spark's SQL adds to its workers' environment. Workers serve jobs with the same one: so
    these serve both, and those that stand ready are taken.
    """
    simple = str(session.conf.get(_SIMPLE, "true")).lower() == "true"
    return {"SPARK_SIMPLIFIED_TRACEBACK": "1"} if simple else {}
