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
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from pyspark.sql import DataFrame

from exactum.errors import CheckpointRefused
from exactum.protocol.sink import Guarantee
from exactum.spark.control.listener import ControlListener
from exactum.spark.jvm.batch_plan import BatchPlan
from exactum.spark.jvm.error import JvmError
from exactum.spark.jvm.state_operator import CheckpointIds, StateOperator, report_commits
from exactum.spark.run.earlier_attempts import ON_DIFFERENCE, EarlierAttempts
from exactum.spark.run.operator_state import NotWhole, OperatorState
from exactum.spark.run.state_version import VersionFile, remove_snapshots, version_files
from exactum.spark.run_context import RunContext
from exactum.spark.write import write_job
from exactum.spark.write.fingerprint import Fingerprint

logger = logging.getLogger("exactum")

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_PLAIN, _WITH_IDS = "1", "2"


class DecidedEpochs:
    """What a run records with each decision, and does with an epoch that stands."""

    def __init__(self, context: RunContext, control: Sequence[ControlListener]) -> None:
        self._control = control
        self._session = context.session
        self._running = context.query
        self._guarantee = context.run.guarantee
        self._plan = BatchPlan(context.session, context.query.execution)
        self._checkpoint_ids: CheckpointIds | None = None
        self._fingerprint: Fingerprint | None = None
        self._states: list[OperatorState] = []
        self._earlier_attempts = EarlierAttempts(context)

    def has_state(self) -> bool:
        """Whether the query keeps state. True where Spark does not say."""
        try:
            return bool(self._plan.state_operators())
        except JvmError:
            return True

    def begin(self, batch_id: int, first: bool) -> None:
        """Called before an epoch is computed. Before a run's ``first``, which an earlier run may
        have tried: what that one has left of its state must not be taken for that of this one.

        Raises:
            CheckpointRefused: it cannot be removed.
            EpochAborted: it may come back in this Spark application.
        """
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

    def wrote(self, fingerprint: Fingerprint | None) -> None:
        """The fingerprint of the batch at hand, whose write job has succeeded."""
        self._fingerprint = fingerprint

    def record(self) -> str:
        """What a start has to know of the batch at hand, whose write job has succeeded, as JSON
        text. Where Spark does not tell its part, the rest alone, or nothing. With ``at_most_once``
        the job is yet to come, so only ``rules`` is known.

        ``rules``: for each control stream the record of what the epoch saw, which is durable.
        ``watermarks_ms``: the greatest event time of each watermark, in ms since 1970, null where
        no row had one. ``decided_ms``: when this was asked, in ms since 1970; the state that
        belongs to the epoch was written before. ``state_ids``: in checkpoint format 2, for each
        stateful operator and partition the ids of its stores' versions. ``state_seals``: in format
        1, for each the digest of its files, null where they are not on this machine.
        ``fingerprint``: how many rows the batch had, and the sum of their hashes; left out where
        it is not known.

        Raises:
            CheckpointRefused, Unavailable: what the epoch saw of a control stream cannot be
                recorded.
        """
        facts: dict[str, Any] = {}
        if self._control:
            facts["rules"] = {each.topic: each.recorded() for each in self._control}
        if self._guarantee is Guarantee.AT_MOST_ONCE:
            return json.dumps(facts) if facts else ""
        if self._fingerprint is not None:
            facts["fingerprint"] = astuple(self._fingerprint)
        try:
            facts.update(self._known_to_spark())
        except (JvmError, OSError) as error:
            logger.debug("%s: what a restart needs is not recorded: %s", self._running, error)
        return json.dumps(facts) if facts else ""

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

    def go_on(self, batch_id: int, recorded: str, frame: DataFrame) -> None:
        """Let Spark go on with the state that the epoch has left. Where it cannot be had, compute
        the epoch once more, and compare the result with what was written, where that is on record.

        ``recorded`` is what ``record`` said when it was decided.

        Raises:
            CheckpointRefused: the result is another one, so state and output would disagree.
            Exception: as ``write_job.drain``.
        """
        why = self._why_not(recorded)
        if not why:
            logger.info(
                "%s: epoch %d stands, with its state; nothing of it is computed again",
                self._running,
                batch_id,
            )
            return
        rules = _facts(recorded).get("rules", {})
        for each in self._control:
            each.compute_again(batch_id, rules.get(each.topic))
        if self.has_state():
            self._compute_again(batch_id, recorded, frame, why)
        else:
            logger.info("%s: epoch %d is computed once more: %s", self._running, batch_id, why)
            write_job.drain(frame)

    def _compute_again(self, batch_id: int, recorded: str, frame: DataFrame, why: str) -> None:
        written = _fingerprint_in(recorded)
        logger.warning(
            "%s: epoch %d stands, and is computed once more for its state: %s. %s",
            self._running,
            batch_id,
            why,
            "Its rows are compared with those that were written"
            if written is not None
            else "If the query gives another result now (a table that has changed, rand(), a "
            "lookup), state and output disagree from here on: its record does not say which rows "
            "were written",
        )
        self._begin_anew(batch_id)
        self._earlier_attempts.trying(batch_id)
        if written is None:
            write_job.drain(frame)
            return
        now = write_job.fingerprint(frame)
        if now == written:
            logger.info("%s: epoch %d gives the rows that stand", self._running, batch_id)
            return
        counts = (
            f"{written.rows} rows were written, and it gives {now.rows} now"
            if written.rows != now.rows
            else f"it gives as many rows ({now.rows}) as were written, but not the same ones"
        )
        found = (
            f"{self._running}: epoch {batch_id} stands in the sinks. It was computed once more for "
            f"its state, because {why}; and the result is another one: {counts}. State and output "
            "would disagree from here on."
        )
        if self._session.conf.get(ON_DIFFERENCE, "stop") == "warn":
            logger.warning("%s %s=warn lets the query go on with it.", found, ON_DIFFERENCE)
            return
        raise CheckpointRefused(
            "RESULT_DIFFERS",
            f"{found} What may differ: a table or a service that the query looks things up in, "
            "rand(), uuid(), the order of rows behind a shuffle, the query itself. Give it what it "
            "had when the rows were written, and start again; or restore a savepoint; or begin "
            f"with a new checkpoint. {ON_DIFFERENCE}=warn accepts the difference. Nothing was "
            "written.",
        )

    def _why_not(self, recorded: str) -> str:
        facts = _facts(recorded)
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


def _facts(recorded: str) -> dict[str, Any]:
    return dict(json.loads(recorded)) if recorded else {}


def _fingerprint_in(recorded: str) -> Fingerprint | None:
    found = _facts(recorded).get("fingerprint")
    return None if found is None else Fingerprint(*found)
