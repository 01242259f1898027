"""The nodes of a batch's plan that keep state, and those that note event times
(statefulOperators.scala, EventTimeWatermarkExec.scala, StateStoreCoordinator.scala).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import count, takewhile
from typing import Any

from py4j.java_gateway import get_java_class
from pyspark.sql import SparkSession

from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.java_class import class_name, first_there, is_there, java_class

_STREAMING = "org.apache.spark.sql.execution.streaming"
_INFO = "StatefulOpStateStoreCheckpointInfo"


class Watermark:
    """A node of the batch at hand that notes event times (EventTimeWatermarkExec)."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def greatest_ms(self) -> int | None:
        """The greatest event time of the batch, in ms since 1970; None where no row had one."""
        stats = self._node.eventTimeStats().value()
        return int(stats.max()) if int(stats.count()) else None

    def note(self, time_ms: int) -> None:
        """As if a row of the batch had this event time, in ms since 1970."""
        self._node.eventTimeStats().add(time_ms)


class StateOperator:
    """A node of the batch at hand that keeps state (StateStoreWriter)."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self._info = node.stateInfo().get()

    def operator_id(self) -> int:
        return int(self._info.operatorId())

    def location(self) -> str:
        """The folder of all state, a URI as Spark prints it."""
        return str(self._info.checkpointLocation())

    def version(self) -> int:
        """The version that the batch at hand began with."""
        return int(self._info.storeVersion())

    def partitions(self) -> int:
        """How many partitions have state: an aggregate without keys has one, whatever the state was
        planned for.
        """
        most = int(self._info.numPartitions())
        has = int(self._node.outputPartitioning().numPartitions())
        return has if 0 < has < most else most

    # ---- checkpoint format 2 -----------------------------------------------------------------

    def computed(self) -> Any:
        """A list of what each task has said of the state that it left, in the order in which the
        tasks ended.
        """
        return self._node.checkpointInfoAccumulator().value()

    def put_checkpoint_ids(self, session: SparkSession, ids: Iterable[list[str]]) -> None:
        """Put each partition's ids of its stores' next version into the accumulator from which
        Spark takes them for its commit log, in place of any other.
        """
        context: Any = session.sparkContext
        info_class: Any = first_there(
            session,
            f"{_STREAMING}.operators.stateful.{_INFO}",
            f"{_STREAMING}.{_INFO}",  # Spark 4.0
        )
        some = java_class(session, "scala.Option").apply
        text = java_class(session, "java.lang.String")
        accumulator = self._node.checkpointInfoAccumulator()
        accumulator.reset()
        version = self.version() + 1
        for partition, of_partition in enumerate(ids):
            array = context._gateway.new_array(text, len(of_partition))
            for place, one in enumerate(of_partition):
                array[place] = one
            base = self._info.getStateStoreCkptId(partition)
            accumulator.add(info_class(partition, version, some(array), base))


def report_commits(
    session: SparkSession,
    run_id: str,
    operator: StateOperator,
    stores: Iterable[tuple[int, str]],
) -> None:
    """Tell Spark that these stores (partition, name) have their next version, as their tasks did
    when they wrote it. Since 4.1 it refuses a batch of ``foreachBatch`` that leaves one out.
    """
    plain: Any = session
    state = f"{_STREAMING}.state"
    if not is_there(java_class(session, f"{state}.ReportStateStoreCommit")):
        return  # Spark 4.0
    store_id = java_class(session, f"{state}.StateStoreId")
    provider_id = java_class(session, f"{state}.StateStoreProviderId")
    coordinator = plain._jsparkSession.streams().stateStoreCoordinator()
    run = java_class(session, "java.util.UUID").fromString(run_id)
    location, operator_id, version = operator.location(), operator.operator_id(), operator.version()
    for partition, store in stores:
        named = store_id(location, operator_id, partition, store)
        provider = provider_id(named, run)
        coordinator.reportStateStoreCommit(provider, version + 1, store)


_WATERMARK = "EventTimeWatermark"
_WRITERS = (
    "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter",
    "org.apache.spark.sql.execution.streaming.StateStoreWriter",  # Spark 4.0
)


class BatchPlan:
    """Finds nodes in the physical plan of the batch at hand. Each look into the JVM costs a call,
    so the nodes' numbers are kept: the plan of a query's batches hardly changes.

    Every method raises JvmError where Spark does not answer.
    """

    def __init__(self, session: SparkSession, execution: Execution) -> None:
        self._session = session
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
        # Spark leaves branches without input out: only of all of them can it be said that there are
        # no others.
        known = self._marks_at if len(self._marks_at) == self._marks else None
        self._marks_at, nodes = self._nodes(known, _is_watermark)
        return [Watermark(node) for node in nodes]

    def state_operators(self) -> list[StateOperator]:
        """The nodes that keep state (StateStoreWriter), parents first. No batch is without any of
        them.
        """
        self._writers_at, nodes = self._nodes(self._writers_at, self._is_writer)
        return [StateOperator(node) for node in nodes]

    def ids_of(self, operator: StateOperator) -> list[list[str]]:
        """The ids that tasks gave to the versions of their stores, of each partition, in order:
        those of the last computation, to which what was written belongs. Where there were several,
        Spark would go on with the first (statefulOperators.scala, getStateStoreCheckpointInfo): it
        is given the last one. Two calls of the JVM, however many ids there are.
        """
        said = json.loads(self._mapper.writeValueAsString(operator.computed()))
        last = {info["partitionId"]: info["stateStoreCkptId"] for info in said}
        ids = [last[partition] for partition in sorted(last)]
        if len(said) > len(ids) == operator.partitions():
            operator.put_checkpoint_ids(self._session, ids)
        return ids

    @cached_property
    def _mapper(self) -> Any:
        jackson = "com.fasterxml.jackson"
        mapper = java_class(self._session, f"{jackson}.databind.ObjectMapper")()
        scala = java_class(self._session, f"{jackson}.module.scala.DefaultScalaModule")()
        mapper.registerModule(scala)
        return mapper

    def _nodes(
        self, numbers: list[int] | None, is_one: Callable[[Any], bool]
    ) -> tuple[list[int], list[Any]]:
        """Those with these ``numbers``, if they still are of the kind; else all that are in the
        plan, with their numbers.
        """
        if numbers == []:
            return [], []
        plan = self._execution.executed_plan()
        if numbers is not None:
            nodes = [plan.apply(number) for number in numbers]
            if all(node is not None and is_one(node) for node in nodes):
                return numbers, nodes
        numbered = ((number, plan.apply(number)) for number in count())
        whole = takewhile(lambda each: each[1] is not None, numbered)
        found = [(number, node) for number, node in whole if is_one(node)]
        return [number for number, _ in found], [node for _, node in found]

    def _is_writer(self, node: Any) -> bool:
        return self._writer is not None and bool(self._writer.isInstance(node))


def _is_watermark(node: Any) -> bool:
    return class_name(node) == f"{_WATERMARK}Exec"
