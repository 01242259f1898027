"""Frames, jobs and writers that PySpark has no public way to make or to ask (Dataset.scala,
SparkSession.scala, MapInArrowExec.scala, DataStreamWriter.scala).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from exactum.spark.jvm.java_class import class_name, java_class, nodes_of

_CHECK = "spark.sql.streaming.unsupportedOperationCheck"


def frame_of(session: SparkSession, plan: Any) -> DataFrame:
    """The frame of a logical plan."""
    plain: Any = session
    datasets = java_class(session, "org.apache.spark.sql.classic.Dataset")
    dataset = datasets.ofRows(plain._jsparkSession, plan)
    return DataFrame(dataset, plain)


def logical_plan(frame: DataFrame) -> Any:
    plain: Any = frame
    return plain._jdf.logicalPlan()


def node_names(frame: DataFrame) -> list[str]:
    """The classes of the nodes of the frame's analyzed plan, parents first."""
    plain: Any = frame
    return [class_name(node) for node in nodes_of(plain._jdf.queryExecution().analyzed())]


PYTHON_FUNCTION = "org.apache.spark.sql.catalyst.expressions.PythonUDF"


def classes_in(plan: Any) -> list[str]:
    """Every class that a plan's JSON names (``TreeNode.toJSON``): nodes and expressions. That of a
    function in Python is followed by its name in brackets.
    """
    return list(_classes(json.loads(plan.toJSON())))


def _classes(plan: Any) -> Iterator[str]:
    if isinstance(plan, dict):
        if "class" in plan:
            name = str(plan["class"])
            yield f"{name}({plan.get('name')})" if name == PYTHON_FUNCTION else name
        for value in plan.values():
            yield from _classes(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from _classes(value)


def unchecked_session(session: SparkSession) -> SparkSession:
    """A copy of the session that runs the plan of a streaming query's batch as a batch: the check
    that refuses it outside of a query is switched off.
    """
    plain: Any = session
    clone = plain._jsparkSession.cloneSession()
    clone.conf().set(_CHECK, "false")
    return SparkSession(plain.sparkContext, clone)


def unheard_session(session: SparkSession) -> SparkSession:
    """A session beside this one whose queries and jobs no listener of it hears of."""
    hidden: Any = session.newSession()
    manager = hidden._jsparkSession.streams()
    for listener in manager.listListeners():
        manager.removeListener(listener)
    hidden._jsparkSession.listenerManager().clear()
    made: SparkSession = hidden
    return made


# ---- jobs over Arrow batches ---------------------------------------------------------------------

Task = Callable[[Iterator[Any]], Iterator[Any]]
"""From the Arrow record batches of a partition to those of its result. Picklable."""


def call(columns: Sequence[str], task: Task, schema: StructType | str) -> Any:
    """A call of ``task`` with these columns, for any frame that has them; it takes Spark 8 ms to
    make.
    """
    udf = UserDefinedFunction(task, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    return udf(*[col(quoted(name)) for name in columns])


def applied(frame: DataFrame, called: Any) -> DataFrame:
    """The frame of what the task returns for the partitions of ``frame``. PySpark's own
    ``mapInArrow`` refuses to run without pandas, which nothing here uses, and it takes a dot in a
    column's name for a field of a struct.
    """
    plain: Any = frame
    return DataFrame(plain._jdf.mapInArrow(called._jc, False, None), plain.sparkSession)


def quoted(column: str) -> str:
    """A column's name in back quotes, so that it is taken as it is."""
    return "`" + column.replace("`", "``") + "`"


BRIEF_TASKS_MAX = 4
"""Each row costs a call to the JVM and back, three times."""


@dataclass(frozen=True)
class Tasks:
    """In how many tasks a job runs, None: in those that Spark plans; and whether there are few
    enough for ``collected_briefly``.
    """

    number: int | None = None
    brief: bool = False

    def texts(self, frame: DataFrame, applied: Callable[[DataFrame], DataFrame]) -> list[str]:
        """What the tasks of ``applied`` return that are given the rows of ``frame``."""
        given = frame if self.number is None else frame.coalesce(self.number)
        return (collected_briefly if self.brief else collected)(applied(given))


def collected(frame: DataFrame) -> list[str]:
    """By ``collect``: for any number of tasks."""
    return [str(row[0]) for row in frame.collect()]


def collected_briefly(frame: DataFrame) -> list[str]:
    """By a job of Spark's core, without what Spark does around each ``collect`` (docs/adr/0018): 8
    ms less.

    That is an execution of its own with a description of the plan; a socket through which Python is
    given the rows; and, in ``RDD.collect``, twice, reading the byte code of SparkContext through in
    search of a ``return`` (ClosureCleaner.scala). ``collectAsync`` is the one action whose closure
    is declared in a small class. It keeps references to rows that Spark uses again, so a task must
    not return more than one.

    Raises:
        Exception: Spark's error, inside of Java's ExecutionException.
    """
    plain: Any = frame
    rows = plain._jdf.queryExecution().toRdd().toJavaRDD().collectAsync().get()
    return [str(rows.get(place).getUTF8String(0).toString()) for place in range(rows.size())]


# ---- what a writer of a stream was given ---------------------------------------------------------

_FUNCTION = "foreachBatchWriter"
WRITER_OPTIONS = {
    "checkpointlocation": "checkpointLocation",
    "queryname": "queryName",
    "path": "path",
}
_FORMAT, FOR_EACH_BATCH = "spark.sql.sources.default", "foreachBatch"


def given_to(writer: Any) -> list[str]:
    """Which of foreachBatch, format, checkpointLocation, queryName and path it has. Spark would let
    the last one count, without a word.
    """
    options = _field(writer, "extraOptions")
    names = [shown for name, shown in WRITER_OPTIONS.items() if options.contains(name)]
    if _field(writer, _FUNCTION) is not None:
        return [FOR_EACH_BATCH, *names]
    default = writer._df.sparkSession.conf.get(_FORMAT)
    return names if _field(writer, "source") == default else ["format", *names]


def _field(writer: Any, name: str) -> Any:
    plain = writer._jwrite
    field = plain.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(plain)
