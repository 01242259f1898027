"""An epoch that stands in its sinks and not in Spark's commit log: Spark goes on without computing
it again.

Computed once more, its state could differ from the output that stands: a table that was joined has
changed since, or a function looks things up. State stores write their next version in the job that
writes the sinks, so when an epoch is decided, the state that belongs to it is there already. What
Spark takes from an executed plan besides is recorded with the decision and put back: the greatest
event time of each watermark, and the ids of the versions of the state (docs/adr/0020).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError

from exactum.spark.run.batch_plan import BatchPlan
from exactum.spark.run.operator_state import NotWhole, OperatorState
from exactum.spark.run.state_version import VersionFile, version_files
from exactum.spark.run_context import RunContext

logger = logging.getLogger("exactum")

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_PLAIN, _WITH_IDS = "1", "2"


class StandingEpochs:
    """What a run records with each decision, and does with an epoch that stands."""

    def __init__(self, context: RunContext) -> None:
        self._session = context.session
        self._running = context.query
        self._plan = BatchPlan(context.session, context.query)
        self._mapper: Any = None

    def record(self) -> str:
        """What Spark has to know of the batch at hand, whose write job has succeeded, as JSON text.
        Empty where it cannot be told.

        ``watermarks_ms``: the greatest event time of each watermark, in ms since 1970, null where
        no row had one. ``decided_ms``: when this was asked, in ms since 1970; the state that
        belongs to the epoch was written before. ``state_ids``: in checkpoint format 2, for each
        stateful operator and partition the ids of its stores' versions.
        """
        try:
            facts: dict[str, Any] = {
                "watermarks_ms": [_greatest_ms(mark) for mark in self._plan.watermarks()]
            }
            if self._format() == _WITH_IDS:
                facts["state_ids"] = {
                    str(node.stateInfo().get().operatorId()): self._ids(node)
                    for node in self._plan.state_writers()
                }
        except Py4JError as error:
            logger.debug("%s: what a restart needs is not recorded: %s", self._running, error)
            return ""
        return json.dumps({**facts, "decided_ms": time.time_ns() // 1_000_000 + 1})

    def go_on(self, batch_id: int, recorded: str) -> bool:
        """Let Spark go on with the state that the epoch has left. False where it has to be computed
        again.

        ``recorded`` is what ``record`` said when it was decided.
        """
        why = self._why_not(recorded)
        if why:
            logger.log(
                logging.WARNING if self._has_state() else logging.INFO,
                "%s: epoch %d stands, and is computed once more for its state: %s. If the query "
                "gives another result now (a table that has changed, rand(), a lookup), state and "
                "output disagree from here on",
                self._running,
                batch_id,
                why,
            )
        else:
            logger.info(
                "%s: epoch %d stands, with its state; nothing of it is computed again",
                self._running,
                batch_id,
            )
        return not why

    def _why_not(self, recorded: str) -> str:
        if not recorded:
            return "its record does not say what Spark has to know of it"
        try:
            known = _Known.of(json.loads(recorded))
            marks = self._plan.watermarks()
            if len(marks) != len(known.watermarks_ms):
                return f"the query has {len(marks)} watermarks, and had {len(known.watermarks_ms)}"
            states = [OperatorState.of(node) for node in self._plan.state_writers()]
            written = [(state, self._written(state, known)) for state in states]
            for mark, time_ms in zip(marks, known.watermarks_ms, strict=True):
                if time_ms is not None:
                    mark.eventTimeStats().add(time_ms)
            for state, files in written:
                self._report(state, files)
                if self._format() == _WITH_IDS:
                    self._put_ids(state, known.ids_of(state))
        except NotWhole as why:
            return str(why)
        except Py4JError as error:
            return f"Spark did not answer: {error}"
        return ""

    def _written(self, state: OperatorState, known: _Known) -> list[VersionFile]:
        """One file of the version that the batch left for each of the operator's stores.

        Raises:
            NotWhole: one is missing, or was written again since.
        """
        version_format = self._format()
        if version_format not in (_PLAIN, _WITH_IDS):
            raise NotWhole(f"{_FORMAT} is {version_format}, which this exactum does not know")
        try:
            files = version_files(self._session, state.folder, state.version + 1)
        except OSError as error:
            raise NotWhole(str(error)) from error
        files = [
            file for file in files if file.partition < state.partitions
        ]  # others are of a time of more partitions
        if version_format == _WITH_IDS:
            return state.with_ids(files, known.ids_of(state))
        return state.before(files, known.decided_ms)

    def _report(self, state: OperatorState, files: Iterable[VersionFile]) -> None:
        """Tell Spark that these stores have their version, as their tasks did when they wrote it.
        Since 4.1 it refuses a batch of ``foreachBatch`` that leaves one out.
        """
        session: Any = self._session
        jvm = session.sparkContext._jvm
        state_package = jvm.org.apache.spark.sql.execution.streaming.state
        if not isinstance(state_package.ReportStateStoreCommit, JavaClass):
            return
        coordinator = session._jsparkSession.streams().stateStoreCoordinator()
        run_id = jvm.java.util.UUID.fromString(self._running.run_id)
        for file in files:
            named = state_package.StateStoreId(
                state.location, state.operator_id, file.partition, file.store
            )
            provider = state_package.StateStoreProviderId(named, run_id)
            coordinator.reportStateStoreCommit(provider, state.version + 1, file.store)

    def _has_state(self) -> bool:
        try:
            return bool(self._plan.state_writers())
        except Py4JError:
            return True

    # ---- checkpoint format 2 -----------------------------------------------------------------

    def _format(self) -> str:
        return str(self._session.conf.get(_FORMAT, _PLAIN))

    def _ids(self, node: Any) -> list[list[str]]:
        """Of each partition, in order: the ids of its stores' versions. One call of the JVM,
        however many there are.
        """
        if self._mapper is None:
            jackson = self._session.sparkContext._jvm.com.fasterxml.jackson  # type: ignore[union-attr]
            self._mapper = jackson.databind.ObjectMapper()
            self._mapper.registerModule(jackson.module.scala.DefaultScalaModule())
        infos = json.loads(self._mapper.writeValueAsString(node.getStateStoreCheckpointInfo()))
        return [info["stateStoreCkptId"] for info in infos]

    def _put_ids(self, state: OperatorState, ids: list[list[str]]) -> None:
        """Into the accumulator from which Spark takes them for its commit log, in place of any
        other.
        """
        context: Any = self._session.sparkContext
        streaming = context._jvm.org.apache.spark.sql.execution.streaming
        info_class = streaming.operators.stateful.StatefulOpStateStoreCheckpointInfo
        if not isinstance(info_class, JavaClass):
            info_class = streaming.StatefulOpStateStoreCheckpointInfo  # Spark 4.0
        some = context._jvm.scala.Option.apply
        accumulator = state.node.checkpointInfoAccumulator()
        accumulator.reset()
        for partition, of_partition in enumerate(ids):
            array = context._gateway.new_array(context._jvm.java.lang.String, len(of_partition))
            for place, one in enumerate(of_partition):
                array[place] = one
            base = state.node.stateInfo().get().getStateStoreCkptId(partition)
            accumulator.add(info_class(partition, state.version + 1, some(array), base))


@dataclass(frozen=True)
class _Known:
    """What the record of an epoch says. See ``StandingEpochs.record``."""

    watermarks_ms: list[int | None]
    decided_ms: int
    state_ids: dict[str, list[list[str]]]

    @classmethod
    def of(cls, facts: dict[str, Any]) -> _Known:
        """
        Raises:
            NotWhole: an older exactum wrote it, in an order of watermarks that is not known.
        """
        times = facts.get("watermarks_ms")
        if times is None:
            times = facts["event_time_max_ms"]
            if len(times) > 1:
                raise NotWhole(
                    "its record is of an older exactum, which ordered watermarks in another way"
                )
        return cls(times, facts["decided_ms"], facts.get("state_ids", {}))

    def ids_of(self, state: OperatorState) -> list[list[str]]:
        """
        Raises:
            NotWhole: the record has none of this operator.
        """
        try:
            return self.state_ids[str(state.operator_id)]
        except KeyError:
            raise NotWhole(
                f"its record does not name the state of operator {state.operator_id}"
            ) from None


def _greatest_ms(mark: Any) -> int | None:
    stats = mark.eventTimeStats().value()
    return int(stats.max()) if int(stats.count()) else None
