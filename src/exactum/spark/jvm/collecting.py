"""Two ways for what a job's tasks returned to come to the driver: PySpark's own, and a shorter one
for few tasks.

Each task returns one row of one text (``write_task.record_batch``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

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
