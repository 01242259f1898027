"""A job that runs a function on each partition's Arrow batches (MapInArrowExec.scala).

PySpark's own ``mapInArrow`` refuses to run without pandas, which nothing here uses, and it takes a
dot in a column's name for a field of a struct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

Task = Callable[[Iterator[Any]], Iterator[Any]]
"""From the Arrow record batches of a partition to those of its result. Picklable."""


def call(columns: Sequence[str], task: Task, schema: StructType | str) -> Any:
    """A call of ``task`` with these columns, for any frame that has them; it takes Spark 8 ms to
    make.
    """
    udf = UserDefinedFunction(task, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    return udf(*[col(quoted(name)) for name in columns])


def applied(frame: DataFrame, called: Any) -> DataFrame:
    """The frame of what the task returns for the partitions of ``frame``."""
    plain: Any = frame
    return DataFrame(plain._jdf.mapInArrow(called._jc, False, None), plain.sparkSession)


def quoted(column: str) -> str:
    """A column's name in back quotes, so that it is taken as it is."""
    return "`" + column.replace("`", "``") + "`"
