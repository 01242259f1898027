"""An epoch that stands in its sinks and not in Spark's commit log: Spark goes on without computing
it again.

Computed once more, its state could differ from the output that stands: a table that was joined has
changed since, or a function looks things up. State stores write their next version in the job that
writes the sinks, so when an epoch is decided, the state that belongs to it is there already. What
Spark takes from an executed plan besides is recorded with the decision and put back: the greatest
event time of each watermark, and the ids of the versions of the state (docs/adr/0020).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from exactum.errors import SettingRefused
from exactum.spark.control.listener import ControlListener
from exactum.spark.jvm.batch_plan import BatchPlan
from exactum.spark.jvm.error import JvmError
from exactum.spark.jvm.state_operator import CheckpointIds, StateOperator, report_commits
from exactum.spark.query import Run
from exactum.spark.run.standing_epochs import ON_DIFFERENCE, StandingEpochs, facts_in
from exactum.spark.run.state_version import NotWhole, stores_with_ids
from exactum.spark.state_format import FORMAT, PLAIN, PROVIDER, ROCKSDB, WITH_IDS
from exactum.spark.write.writing import Writing


class DecidedEpochs(StandingEpochs):
    """In a classic session, where Spark's plans are at hand."""

    def __init__(self, run: Run, control: Sequence[ControlListener], writing: Writing) -> None:
        super().__init__(run, control, writing)
        self._plan = BatchPlan(run.session, run.execution)
        self._checkpoint_ids: CheckpointIds | None = None

    def has_state(self) -> bool:
        """See the base class."""
        try:
            return bool(self._plan.state_operators())
        except JvmError:
            return True

    def refuse_unnamed_state(self) -> None:
        """See the base class. In format 1 an attempt writes over the state of the one before, and
        a snapshot of that one may come back beside it.
        """
        if self._has_ids or not self._exact or self._accepts_difference or not self.has_state():
            return
        raise SettingRefused(
            "STATE_FORMAT",
            f"{self._run} keeps state in checkpoint format 1, where the state of a batch that was "
            "decided cannot be told from that of a try that failed. Begin with a new checkpoint, "
            f"and leave {PROVIDER} to start(), or set it to {ROCKSDB} and {FORMAT} to 2.\n"
            f"Where the query gives the same result each time, {ON_DIFFERENCE}=warn lets it go "
            "on. Nothing was written.",
        )

    def _known_to_spark(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "watermarks_ms": [mark.greatest_ms() for mark in self._plan.watermarks()]
        }
        operators = self._plan.state_operators() if self._has_ids else []
        return {**facts, "state_ids": {str(o.operator_id()): self._ids(o) for o in operators}}

    def _why_not(self, recorded: str) -> str:
        facts = facts_in(recorded)
        if "watermarks_ms" not in facts:
            return "its record does not say what Spark has to know of it"
        try:
            marks, times_ms = self._plan.watermarks(), facts["watermarks_ms"]
            if len(marks) != len(times_ms):
                return f"the query has {len(marks)} watermarks, and had {len(times_ms)}"
            operators = self._plan.state_operators()
            if operators and not self._has_ids:
                return "in checkpoint format 1 nobody can tell whether its state is this one"
            ids = [facts.get("state_ids", {}).get(str(one.operator_id())) for one in operators]
            stores = [
                stores_with_ids(self._session, one, own)
                for one, own in zip(operators, ids, strict=True)
            ]
            for mark, time_ms in zip(marks, times_ms, strict=True):
                if time_ms is not None:
                    mark.note(time_ms)
            for operator, own, there in zip(operators, ids, stores, strict=True):
                report_commits(self._session, self._run.run_id, operator, there)
                operator.put_checkpoint_ids(self._session, own)
        except (NotWhole, OSError) as why:
            return str(why)
        except JvmError as error:
            return f"Spark did not answer: {error}"
        return ""

    @cached_property
    def _has_ids(self) -> bool:
        return str(self._session.conf.get(FORMAT, PLAIN)) == WITH_IDS

    def _ids(self, operator: StateOperator) -> list[list[str]]:
        if self._checkpoint_ids is None:
            self._checkpoint_ids = CheckpointIds(self._session)
        return self._checkpoint_ids.of(operator)
