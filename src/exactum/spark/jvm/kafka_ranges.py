"""Micro-batches that Python workers read from Kafka by themselves: the driver half, in the JVM
(KafkaRanges.java).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.java_class import is_there, java_class

CLASS = "exactum.KafkaRanges"


@dataclass(frozen=True)
class KafkaRange:
    """Offsets ``first`` to ``until - 1`` of a partition."""

    topic: str
    partition: int
    first: int
    until: int


@dataclass(frozen=True)
class Planned:
    """What Spark has planned of a micro-batch.

    ``columns``: the number of each, as ``KafkaRecords.java`` numbers them, and its name.
    ``function``: tells the function over them from others; empty where there is none.
    ``isolation`` and ``poll_timeout_ms``: as the scan has them.
    """

    columns: tuple[tuple[int, str], ...]
    function: str
    isolation: str
    poll_timeout_ms: int
    ranges: tuple[KafkaRange, ...]

    @staticmethod
    def of(text: str) -> Planned:
        """``text``: as KafkaRanges.java says it."""
        count, function, *lines = text.split("\n")
        places = [line.split(" ", 1) for line in lines[: int(count)]]
        isolation, timeout_ms, *ranges = lines[int(count) :]
        cells = [line.split(" ", 3) for line in ranges]
        return Planned(
            tuple((int(number), name) for number, name in places),
            function,
            isolation,
            int(timeout_ms),
            tuple(
                KafkaRange(topic, int(p), int(first), int(until))
                for p, first, until, topic in cells
            ),
        )


class PlannedBatch:
    """One micro-batch whose plan was recognised."""

    def __init__(self, found: Any) -> None:
        self._found = found
        self.planned = Planned.of(str(found.told()))

    def function(self) -> bytes | None:
        """The function and its return type, pickled as PySpark does; None: there is none."""
        command = self._found.function()
        return None if command is None else bytes(command)

    def set_rows_read(self, count: int) -> None:
        """Tell Spark how many records were read, for its progress reports.

        Raises:
            JvmError: Spark does not answer.
        """
        self._found.setRowsRead(count)


class KafkaRanges:
    """The micro-batches of one run of a query."""

    def __init__(self, session: SparkSession, execution: Execution) -> None:
        self._ranges = java_class(session, CLASS)
        self._execution = execution

    def are_there(self) -> bool:
        """Whether the driver's JVM has the class."""
        return is_there(self._ranges)

    def of(self, frame: DataFrame) -> PlannedBatch | str:
        """The micro-batch at hand, where ``frame`` is no more of it than KafkaRanges.java knows;
        else why not.

        Raises:
            JvmError: Spark does not answer.
        """
        plain: Any = frame
        found = self._ranges.of(plain._jdf, self._execution.last_execution())
        why = str(found.why())
        return why if why else PlannedBatch(found)
