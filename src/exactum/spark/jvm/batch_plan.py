"""The plan that Spark has made of the batch at hand: which of its nodes track event times, which
keep state.

Each look into the JVM costs a call, so the nodes' numbers are kept: the plan of a query's batches
hardly changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from py4j.java_gateway import get_java_class
from pyspark.sql import SparkSession

from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.java_class import first_there
from exactum.spark.jvm.seq import class_name
from exactum.spark.jvm.state_operator import StateOperator, Watermark

_WATERMARK = "EventTimeWatermark"
_WRITERS = (
    "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter",
    "org.apache.spark.sql.execution.streaming.StateStoreWriter",  # Spark 4.0
)


class BatchPlan:
    """Finds nodes in the physical plan of the batch at hand.

    Every method raises JvmError where Spark does not answer.
    """

    def __init__(self, session: SparkSession, execution: Execution) -> None:
        writer = first_there(session, *_WRITERS)
        self._writer: Any = None if writer is None else get_java_class(writer)
        self._execution = execution
        self._marks: int | None = None
        self._marks_at: list[int] = []
        self._writers_at: list[int] | None = None

    def watermarks(self) -> list[Watermark]:
        """The nodes that note event times (EventTimeWatermarkExec), parents first."""
        if self._marks is None:
            self._marks = str(self._execution.logical_plan().toString()).count(_WATERMARK)
        if not self._marks:
            return []
        if len(self._marks_at) == self._marks:
            known = self._at(self._marks_at, _is_watermark)
            if known is not None:
                return [Watermark(node) for node in known]
        found = [(number, node) for number, node in self._nodes() if _is_watermark(node)]
        # Spark leaves branches without input out: only of all of them can it be said that there are
        # no others.
        self._marks_at = [number for number, _ in found]
        return [Watermark(node) for _, node in found]

    def state_operators(self) -> list[StateOperator]:
        """The nodes that keep state (StateStoreWriter), parents first. No batch is without any of
        them.
        """
        if self._writers_at is not None:
            known = self._at(self._writers_at, self._is_writer)
            if known is not None:
                return [StateOperator(node) for node in known]
        found = [(number, node) for number, node in self._nodes() if self._is_writer(node)]
        self._writers_at = [number for number, _ in found]
        return [StateOperator(node) for _, node in found]

    def _plan(self) -> Any:
        return self._execution.executed_plan()

    def _nodes(self) -> Iterator[tuple[int, Any]]:
        plan = self._plan()
        for number in count():
            node = plan.apply(number)
            if node is None:
                return
            yield number, node

    def _at(self, numbers: list[int], is_one: Callable[[Any], bool]) -> list[Any] | None:
        """The nodes with these numbers, or None where one is another now."""
        if not numbers:
            return []
        plan = self._plan()
        nodes = [plan.apply(number) for number in numbers]
        return nodes if all(node is not None and is_one(node) for node in nodes) else None

    def _is_writer(self, node: Any) -> bool:
        return self._writer is not None and bool(self._writer.isInstance(node))


def _is_watermark(node: Any) -> bool:
    return class_name(node) == f"{_WATERMARK}Exec"
