"""An epoch that stands in its sinks and not in Spark's commit log: Spark goes on without computing
it again.

Computed once more, its state could differ from the output that stands: a table that was joined has
changed since, or a function looks things up. State stores write their next version in the job that
writes the sinks, so when an epoch is decided, the state that belongs to it is there already. What
Spark takes from an executed plan besides is recorded with the decision and put back: the greatest
event time of each watermark, and the ids of the versions of the state (docs/adr/0020).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from exactum.errors import CheckpointRefused
from exactum.spark.control.listener import ControlListener
from exactum.spark.jvm.batch_plan import BatchPlan
from exactum.spark.jvm.error import JvmError
from exactum.spark.jvm.state_operator import CheckpointIds, StateOperator, report_commits
from exactum.spark.run.earlier_attempts import EarlierAttempts
from exactum.spark.run.operator_state import NotWhole, OperatorState
from exactum.spark.run.standing_epochs import StandingEpochs, facts_in
from exactum.spark.run.state_version import VersionFile, remove_snapshots, version_files
from exactum.spark.run_context import RunContext
from exactum.spark.write import write_job
from exactum.spark.write.fingerprint import Fingerprint

logger = logging.getLogger("exactum")

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_PLAIN, _WITH_IDS = "1", "2"


class DecidedEpochs(StandingEpochs):
    """In a classic session, where Spark's plans are at hand."""

    def __init__(self, context: RunContext, control: Sequence[ControlListener]) -> None:
        super().__init__(context, control)
        self._plan = BatchPlan(context.session, context.query.execution)
        self._checkpoint_ids: CheckpointIds | None = None
        self._states: list[OperatorState] = []
        self._earlier_attempts = EarlierAttempts(context)

    def has_state(self) -> bool:
        """See the base class."""
        try:
            return bool(self._plan.state_operators())
        except JvmError:
            return True

    def begin(self, batch_id: int, first: bool) -> None:
        """See the base class."""
        if first:
            self._begin_anew(batch_id)
        self._earlier_attempts.trying(batch_id)

    def _begin_anew(self, batch_id: int) -> None:
        """In checkpoint format 2 every try has ids of its own."""
        if self._format() == _WITH_IDS:
            return
        try:
            states = [OperatorState.of(each) for each in self._plan.state_operators()]
        except JvmError as error:
            logger.debug("%s: Spark does not tell of its state: %s", self._running, error)
            return
        if states:
            self._earlier_attempts.unload(batch_id, {state.location for state in states})
        for state in states:
            try:
                removed = remove_snapshots(self._session, state.folder, state.version + 1)
            except (JvmError, OSError) as error:
                raise CheckpointRefused(
                    "STATE_SNAPSHOTS",
                    f"{self._running}: in {state.folder} the snapshots of version "
                    f"{state.version + 1} of the state have to go, which an attempt without a "
                    "decision may have left: a later start would take them for the state of the "
                    f"next attempt. They could not be listed or removed ({error}). Give the "
                    "driver the right to do so, and start again. Nothing was written.",
                ) from error
            for path in removed:
                logger.info(
                    "%s: removed %s, the state of an attempt that was never decided",
                    self._running,
                    path,
                )

    def _forget_attempts(self, batch_id: int) -> None:
        self._begin_anew(batch_id)
        self._earlier_attempts.trying(batch_id)

    def _fingerprint_of(self, frame: DataFrame) -> Fingerprint:
        return write_job.fingerprint(frame)

    def _known_to_spark(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "watermarks_ms": [mark.greatest_ms() for mark in self._plan.watermarks()]
        }
        operators = self._plan.state_operators()
        if self._format() == _WITH_IDS:
            facts["state_ids"] = {str(one.operator_id()): self._ids(one) for one in operators}
        else:
            if len(self._states) != len(operators):
                self._states = [OperatorState.of(one) for one in operators]
            # In another batch the same operators, in the same order, are at another version.
            now = [had.at(one) for had, one in zip(self._states, operators, strict=True)]
            facts["state_seals"] = {str(one.operator_id): one.seal() for one in now}
        return {**facts, "decided_ms": time.time_ns() // 1_000_000 + 1}

    def _why_not(self, recorded: str) -> str:
        facts = facts_in(recorded)
        if "decided_ms" not in facts:
            return "its record does not say what Spark has to know of it"
        try:
            known = _Known.of(facts)
            marks = self._plan.watermarks()
            if len(marks) != len(known.watermarks_ms):
                return f"the query has {len(marks)} watermarks, and had {len(known.watermarks_ms)}"
            states = [OperatorState.of(each) for each in self._plan.state_operators()]
            written = [(state, self._written(state, known)) for state in states]
            for mark, time_ms in zip(marks, known.watermarks_ms, strict=True):
                if time_ms is not None:
                    mark.note(time_ms)
            for state, files in written:
                stores = [(file.partition, file.store) for file in files]
                report_commits(self._session, self._running.run_id, state.operator, stores)
                if self._format() == _WITH_IDS:
                    state.operator.put_checkpoint_ids(self._session, known.ids_of(state))
        except NotWhole as why:
            return str(why)
        except JvmError as error:
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
        return state.unchanged(files, known.seal_of(state), known.decided_ms)

    # ---- checkpoint format 2 -----------------------------------------------------------------

    def _format(self) -> str:
        return str(self._session.conf.get(_FORMAT, _PLAIN))

    def _ids(self, operator: StateOperator) -> list[list[str]]:
        if self._checkpoint_ids is None:
            self._checkpoint_ids = CheckpointIds(self._session)
        return self._checkpoint_ids.of(operator)


@dataclass(frozen=True)
class _Known:
    """What the record of an epoch says. See ``DecidedEpochs.record``."""

    watermarks_ms: list[int | None]
    decided_ms: int
    state_ids: dict[str, list[list[str]]]
    state_seals: dict[str, str | None]

    @classmethod
    def of(cls, facts: dict[str, Any]) -> _Known:
        return cls(
            facts["watermarks_ms"],
            facts["decided_ms"],
            facts.get("state_ids", {}),
            facts.get("state_seals", {}),
        )

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

    def seal_of(self, state: OperatorState) -> str | None:
        """None where its files are not on this machine."""
        return self.state_seals.get(str(state.operator_id))
