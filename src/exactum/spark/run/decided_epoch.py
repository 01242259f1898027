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
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from exactum.errors import CheckpointRefused, EpochAborted
from exactum.spark.control.listener import ControlListener
from exactum.spark.jvm.batch_plan import BatchPlan
from exactum.spark.jvm.error import JvmError
from exactum.spark.jvm.state_operator import CheckpointIds, StateOperator, report_commits
from exactum.spark.open_queries import open_queries
from exactum.spark.query import Run
from exactum.spark.run.operator_state import NotWhole, OperatorState
from exactum.spark.run.standing_epochs import ON_DIFFERENCE, StandingEpochs, facts_in
from exactum.spark.run.state_version import remove_snapshots, version_files
from exactum.spark.state_format import FORMAT, PLAIN, WITH_IDS
from exactum.spark.write import write_job
from exactum.spark.write.fingerprint import Fingerprint

logger = logging.getLogger("exactum")


class DecidedEpochs(StandingEpochs):
    """In a classic session, where Spark's plans are at hand."""

    def __init__(self, run: Run, control: Sequence[ControlListener]) -> None:
        super().__init__(run, control)
        self._plan = BatchPlan(run.session, run.execution)
        self._checkpoint_ids: CheckpointIds | None = None
        self._states: list[OperatorState] = []
        self._key = run.checkpoint

    def has_state(self) -> bool:
        """See the base class."""
        try:
            return bool(self._plan.state_operators())
        except JvmError:
            return True

    def begin(self, batch_id: int, first: bool) -> None:
        """See the base class."""
        if first:
            self._forget_attempts(batch_id)
        open_queries.computes(self._key, batch_id)

    def decided(self) -> None:
        """See the base class."""
        open_queries.decided(self._key)

    def _forget_attempts(self, batch_id: int) -> None:
        """In checkpoint format 2 every try has ids of its own."""
        if self._format() == WITH_IDS:
            return
        try:
            states = [OperatorState.of(each) for each in self._plan.state_operators()]
        except JvmError as error:
            logger.debug("%s: Spark does not tell of its state: %s", self._run, error)
            return
        for state in states:
            try:
                files = version_files(self._session, state.folder, state.version + 1)
                if files and open_queries.undecided(self._key) == batch_id:
                    self._refuse(batch_id)
                removed = remove_snapshots(self._session, state.folder, files)
            except (JvmError, OSError) as error:
                raise CheckpointRefused(
                    "STATE_SNAPSHOTS",
                    f"{self._run}: in {state.folder} the snapshots of version "
                    f"{state.version + 1} of the state have to go, which an attempt without a "
                    "decision may have left: a later start would take them for the state of the "
                    f"next attempt. They could not be listed or removed ({error}). Give the "
                    "driver the right to do so, and start again. Nothing was written.",
                ) from error
            for path in removed:
                logger.info(
                    "%s: removed %s, the state of an attempt that was never decided",
                    self._run,
                    path,
                )

    def _refuse(self, batch_id: int) -> None:
        """Spark unloads the stores of a run that is over at some later time, and makes a last
        snapshot of each, which may come after the version was computed once more.

        Raises:
            EpochAborted: a new process has none of them loaded, so the attempt is void, not the
                checkpoint.
        """
        found = (
            f"{self._run}: micro-batch {batch_id} was computed before in this process, and "
            "not decided. Its state is still loaded, and may come back if the batch gives another "
            "result now."
        )
        if not self._exact or self._session.conf.get(ON_DIFFERENCE, "stop") == "warn":
            logger.warning("%s", found)
            return
        raise EpochAborted(
            f"{found} Start the script again, in a new process (exactum run does so). "
            "Checkpoints that begin with state in RocksDB need no such thing. Where the query "
            f"gives the same result each time, {ON_DIFFERENCE}=warn lets it go on. Nothing was "
            "written."
        )

    def _fingerprint_of(self, frame: DataFrame) -> Fingerprint:
        return write_job.fingerprint(frame)

    def _known_to_spark(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "watermarks_ms": [mark.greatest_ms() for mark in self._plan.watermarks()]
        }
        operators = self._plan.state_operators()
        if self._format() == WITH_IDS:
            return {**facts, "state_ids": {str(o.operator_id()): self._ids(o) for o in operators}}
        if len(self._states) != len(operators):
            self._states = [OperatorState.of(one) for one in operators]
        # In another batch the same operators, in the same order, are at another version.
        now = [had.at(one) for had, one in zip(self._states, operators, strict=True)]
        seals = {one.operator_id: one.sealed() for one in now}
        return {**facts, "state_seals": {str(n): one.seal for n, one in seals.items() if one}}

    def _why_not(self, recorded: str) -> str:
        facts = facts_in(recorded)
        if "watermarks_ms" not in facts:
            return "its record does not say what Spark has to know of it"
        try:
            marks, times_ms = self._plan.watermarks(), facts["watermarks_ms"]
            if len(marks) != len(times_ms):
                return f"the query has {len(marks)} watermarks, and had {len(times_ms)}"
            states = [OperatorState.of(each) for each in self._plan.state_operators()]
            ids = [facts.get("state_ids", {}).get(str(one.operator_id)) for one in states]
            seals = [facts.get("state_seals", {}).get(str(one.operator_id)) for one in states]
            has_ids = self._format() == WITH_IDS
            stores = [
                state.with_ids(version_files(self._session, state.folder, state.version + 1), own)
                if has_ids
                else state.unchanged(seal)
                for state, own, seal in zip(states, ids, seals, strict=True)
            ]
            for mark, time_ms in zip(marks, times_ms, strict=True):
                if time_ms is not None:
                    mark.note(time_ms)
            for state, own, there in zip(states, ids, stores, strict=True):
                report_commits(self._session, self._run.run_id, state.operator, there)
                if has_ids:
                    state.operator.put_checkpoint_ids(self._session, own)
        except (NotWhole, OSError) as why:
            return str(why)
        except JvmError as error:
            return f"Spark did not answer: {error}"
        return ""

    def _format(self) -> str:
        return str(self._session.conf.get(FORMAT, PLAIN))

    def _ids(self, operator: StateOperator) -> list[list[str]]:
        if self._checkpoint_ids is None:
            self._checkpoint_ids = CheckpointIds(self._session)
        return self._checkpoint_ids.of(operator)
