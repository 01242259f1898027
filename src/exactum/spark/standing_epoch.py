"""An epoch that stands in its sinks and not in Spark's commit log: Spark goes on without computing it again.

Computed once more, its state could differ from the output that stands: a table that was joined has changed since, or
a function looks things up. State stores write their next version in the job that writes the sinks, so when an epoch is
decided, the state that belongs to it is there already. What Spark takes from an executed plan besides, the greatest
event time of each watermark, is recorded with the decision and put back (docs/adr/0020).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaClass, is_instance_of
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from exactum.errors import CheckpointRefused
from exactum.spark import checkpoint
from exactum.spark.query import RunningQuery
from exactum.spark.state_store import Store, Vanished, stores

logger = logging.getLogger("exactum")

_WATERMARK = "EventTimeWatermarkExec"
_WRITERS = (
    "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter",
    "org.apache.spark.sql.execution.streaming.StateStoreWriter",  # Spark 4.0
)
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


class StandingEpochs:
    """What a run records with each decision, and does with an epoch that stands."""

    def __init__(self, running: RunningQuery) -> None:
        self._running = running
        self._has_watermark: bool | None = None

    def event_times(self) -> str:
        """What is recorded of the batch at hand, whose write job has succeeded, as JSON text. Empty where it cannot be
        told. The greatest event time of each watermark in ms since 1970, null where no row had one; and when this was
        asked, in ms since 1970: the state that belongs to the epoch was written before.
        """
        if self._has_watermark is None:
            self._has_watermark = "EventTimeWatermark" in str(self._running.execution.logicalPlan().toString())
        try:
            marks = list(self._watermarks()) if self._has_watermark else []
            greatest = [_greatest_ms(mark) for mark in marks]
        except Py4JError as error:
            logger.debug("%s: event times are not recorded: %s", self._running, error)
            return ""
        return json.dumps({"event_time_max_ms": greatest, "decided_ms": time.time_ns() // 1_000_000 + 1})

    def go_on(self, frame: DataFrame, batch_id: int, recorded: str) -> bool:
        """Let Spark go on with the state that the epoch has left. False where it has to be computed again.

        ``recorded`` is what ``event_times`` said when it was decided.
        """
        why = self._why_not(frame, batch_id, recorded)
        if why:
            logger.log(
                logging.WARNING if self._has_state(frame) else logging.INFO,
                "%s: epoch %d stands, and is computed once more for its state: %s. If the query gives another result "
                "now (a table that has changed, rand(), a lookup), state and output disagree from here on",
                self._running,
                batch_id,
                why,
            )
        else:
            logger.info("%s: epoch %d stands, with its state; nothing of it is computed again", self._running, batch_id)
        return not why

    def _why_not(self, frame: DataFrame, batch_id: int, recorded: str) -> str:
        if not recorded:
            return "its record does not say what Spark has to know of it"
        try:
            states = list(self._states(frame))
            if states and str(frame.sparkSession.conf.get(_FORMAT, "1")) != "1":
                return f"{_FORMAT} is not 1"
            known = json.loads(recorded)
            there = [(state, store) for state in states for store in state.stores(known["decided_ms"])]
            marks, greatest = list(self._watermarks()), known["event_time_max_ms"]
            if len(marks) != len(greatest):
                return f"the query has {len(marks)} watermarks, and had {len(greatest)}"
            for mark, time_ms in zip(marks, greatest, strict=True):
                if time_ms is not None:
                    mark.eventTimeStats().add(time_ms)
            self._report(frame, there)
        except _NotWhole as why:
            return str(why)
        except Py4JError as error:
            return f"Spark did not answer: {error}"
        return ""

    def _report(self, frame: DataFrame, there: list[tuple[_State, Store]]) -> None:
        """Tell Spark that these stores have their version, as their tasks did when they wrote it. Since 4.1 it refuses
        a batch of ``foreachBatch`` that leaves one out.
        """
        session: Any = frame.sparkSession
        jvm = session.sparkContext._jvm
        state_package = jvm.org.apache.spark.sql.execution.streaming.state
        if not isinstance(state_package.ReportStateStoreCommit, JavaClass):
            return
        coordinator = session._jsparkSession.streams().stateStoreCoordinator()
        run_id = jvm.java.util.UUID.fromString(self._running.run_id)
        for state, store in there:
            named = state_package.StateStoreId(state.location, state.operator_id, store.partition, store.name)
            provider = state_package.StateStoreProviderId(named, run_id)
            coordinator.reportStateStoreCommit(provider, state.version + 1, store.name)

    def _has_state(self, frame: DataFrame) -> bool:
        try:
            return any(True for _ in self._states(frame))
        except Py4JError:
            return True

    # ---- the plan ----------------------------------------------------------------------------

    def _nodes(self) -> Iterator[Any]:
        """The nodes of the batch's physical plan, parents first."""
        waiting = [self._running.execution.lastExecution().executedPlan()]
        while waiting:
            node = waiting.pop(0)
            yield node
            children = node.children()
            waiting.extend(children.apply(place) for place in range(children.size()))

    def _watermarks(self) -> Iterator[Any]:
        for node in self._nodes():
            if str(node.getClass().getSimpleName()) == _WATERMARK:
                yield node

    def _states(self, frame: DataFrame) -> Iterator[_State]:
        gateway = frame.sparkSession.sparkContext._gateway
        for node in self._nodes():
            if any(_is_a(gateway, node, name) for name in _WRITERS):
                info = node.stateInfo().get()
                # An aggregate without keys has one partition, whatever the state was planned for.
                most, has = int(info.numPartitions()), int(node.outputPartitioning().numPartitions())
                yield _State(
                    str(info.checkpointLocation()),
                    int(info.operatorId()),
                    int(info.storeVersion()),
                    has if 0 < has < most else most,
                )


class _NotWhole(Exception):
    """The state that belongs to an epoch is not all there."""


@dataclass(frozen=True)
class _State:
    """The state of one operator: the folder of all state, and the version that the batch at hand began with."""

    location: str
    operator_id: int
    version: int
    partitions: int

    def stores(self, decided_ms: int) -> list[Store]:
        """Its stores, which all have the version that the batch at hand leaves, written before the decision.

        Raises:
            _NotWhole: one has not, or its version was written again since.
        """
        root = checkpoint.local_folder(self.location)
        if root is None:
            raise _NotWhole("its state lies on no local or shared file system")
        operator = root / str(self.operator_id)
        names: dict[int, set[str]] = {partition: set() for partition in range(self.partitions)}
        found: list[Store] = []
        try:
            for store in stores(operator):
                if store.partition >= self.partitions:  # of a time when there were more
                    continue
                files = store.files(self.version + 1)
                if files is None or any(path.stat().st_size == 0 for path in files):
                    raise _NotWhole(f"{store.folder} has no version {self.version + 1}, or not all of it")
                written = store.written_ms(self.version + 1)
                if written > decided_ms:
                    raise _NotWhole(
                        f"{store.folder} was written since: the batch's frame was computed besides exactum's call "
                        "(count(), isEmpty(), show()), or the checkpoint was copied"
                    )
                names[store.partition].add(store.name)
                found.append(store)
        except (Vanished, CheckpointRefused, OSError) as error:
            raise _NotWhole(str(error)) from error
        if not names[0] or any(each != names[0] for each in names.values()):
            raise _NotWhole(f"not every partition of {operator} has its stores")
        return found


def _is_a(gateway: Any, node: Any, name: str) -> bool:
    try:
        return bool(is_instance_of(gateway, node, name))
    except Py4JError:  # this Spark has no class of this name
        return False


def _greatest_ms(mark: Any) -> int | None:
    stats = mark.eventTimeStats().value()
    return int(stats.max()) if int(stats.count()) else None
