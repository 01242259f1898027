"""An epoch that stands in its sinks and not in Spark's commit log: Spark goes on from it with the
state that belongs to the output.

Computed once more, its state could differ from the output that stands: a table that was joined has
changed since, or a function looks things up. So it is not computed again where the session lets
exactum reach Spark's state (``DecidedEpochs``), and compared where it is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import astuple
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exactum.checkpoint.offset_log import local_folder
from exactum.checkpoint.state_store import DEFAULT, STATE, VERSION_FILE
from exactum.errors import CheckpointRefused, ExactumError, SettingRefused
from exactum.protocol.sink import Guarantee
from exactum.spark.control.listener import ControlListener
from exactum.spark.jvm.hadoop import HadoopFiles
from exactum.spark.jvm.java_class import JvmError
from exactum.spark.jvm.state import BatchPlan, StateOperator, report_commits
from exactum.spark.query import Batch, EpochListener, Run
from exactum.spark.settings import FORMAT, PLAIN, PROVIDER, ROCKSDB, WITH_IDS
from exactum.spark.write.write_job import FingerprintTask, Jobs, drain
from exactum.spark.write.write_task import Fingerprint

logger = logging.getLogger("exactum")

ON_DIFFERENCE = "spark.exactum.standingEpoch.onDifference"
"""A Spark setting: "stop", or "warn" where an epoch that had to be computed once more may have
another result than the one that stands."""


class CommittedEpochs(EpochListener):
    """What a run records with each decision, and does with an epoch that stands: it is computed
    once more, so that Spark's state goes on from it, and its rows are compared with those that were
    written.
    """

    def __init__(self, run: Run, control: Sequence[ControlListener], jobs: Jobs) -> None:
        self._control = control
        self._jobs = jobs
        self._session = run.session
        self._run = run
        self._fingerprint: Fingerprint | None = None

    @property
    def _accepts_difference(self) -> bool:
        return str(self._session.conf.get(ON_DIFFERENCE, "stop")) == "warn"

    # ---- what the kind of session adds -------------------------------------------------------

    def has_state(self) -> bool:
        """Whether the query keeps state, once Spark has planned the batch at hand. True where that
        is not known.

        Spark has put the metadata of each stateful operator into the checkpoint by then
        (StateSchemaAndOperatorMetadataRule in IncrementalExecution.scala).
        """
        return self._run.files is None or bool(self._run.files.names(STATE))

    def writing(self, batch: Batch) -> None:
        """Of the run's first one.

        Raises:
            SettingRefused: Spark keeps the query's state so that nobody can tell to which attempt
                at a batch it belongs.
        """
        self._refuse_unnamed_state()

    def _refuse_unnamed_state(self) -> None:
        """In format 1 an attempt writes over the state of the one before, and a snapshot of that
        one may come back beside it: no comparison of rows sees that. Raises as ``writing``.
        """
        is_exact = self._run.guarantee is Guarantee.EXACTLY_ONCE
        if self._has_ids or not is_exact or self._accepts_difference or not self.has_state():
            return
        raise SettingRefused(
            "STATE_FORMAT",
            f"{self._run} keeps state in checkpoint format 1, where the state of a batch that was "
            "decided cannot be told from that of a try that failed. Begin with a new checkpoint, "
            f"in a session that has {PROVIDER}={ROCKSDB} and {FORMAT}=2; a classic one may leave "
            f"both to start().\nWhere the query gives the same result each time, {ON_DIFFERENCE}="
            "warn lets it go on. Nothing was written.",
        )

    @cached_property
    def _has_ids(self) -> bool:
        return str(self._session.conf.get(FORMAT, PLAIN)) == WITH_IDS

    def _known_to_spark(self) -> dict[str, Any]:
        """What Spark tells of the state that the batch at hand leaves."""
        return {}

    def _why_not(self, recorded: str) -> str:
        """Let Spark go on with the state that the epoch has left, as ``recorded``; else why that
        cannot be.
        """
        return "this kind of session does not reach the state that it left"

    # ------------------------------------------------------------------------------------------

    def wrote(self, fingerprint: Fingerprint | None) -> None:
        """The fingerprint of the batch at hand, whose write job has succeeded; None: not known."""
        self._fingerprint = fingerprint

    def record(self) -> str:
        """What a start has to know of the batch at hand, whose write job has succeeded, as JSON
        text. Where Spark does not tell its part, the rest alone, or nothing. With ``at_most_once``
        the job is yet to come, so only ``rules`` is known.

        ``rules``: for each control stream the record of what the epoch saw, which is durable.
        ``watermarks_ms``: the greatest event time of each watermark, in ms since 1970, null where
        no row had one. ``state_ids``: in checkpoint format 2, for each stateful operator and
        partition the ids of its stores' versions. ``fingerprint``: how many rows the batch had, and
        the sum of their hashes; left out where it is not known.

        Raises:
            CheckpointRefused, Unavailable: what the epoch saw of a control stream cannot be
                recorded.
        """
        facts: dict[str, Any] = {}
        if self._control:
            facts["rules"] = {each.topic: each.recorded() for each in self._control}
        if self._run.guarantee is Guarantee.AT_MOST_ONCE:
            return json.dumps(facts) if facts else ""
        if self._fingerprint is not None:
            facts["fingerprint"] = astuple(self._fingerprint)
        try:
            facts.update(self._known_to_spark())
        except (JvmError, OSError) as error:
            logger.debug("%s: what a restart needs is not recorded: %s", self._run, error)
        return json.dumps(facts) if facts else ""

    def go_on(self, batch_id: int, recorded: str, frame: DataFrame) -> None:
        """Let Spark go on with the state that the epoch has left. Where it cannot be had, compute
        the epoch once more, and compare the result with what was written, where that is on record.

        ``recorded`` is what ``record`` said when it was decided.

        Raises:
            CheckpointRefused: the result is another one, so state and output would disagree.
            Exception: Spark's, where it cannot be computed.
        """
        why = self._why_not(recorded)
        if not why:
            logger.info(
                "%s: epoch %d stands, with its state; nothing of it is computed again",
                self._run,
                batch_id,
            )
            return
        rules = facts_in(recorded).get("rules", {})
        for each in self._control:
            each.compute_again(batch_id, rules.get(each.topic))
        if self.has_state():
            self._compute_again(batch_id, recorded, frame, why)
        else:
            logger.info("%s: epoch %d is computed once more: %s", self._run, batch_id, why)
            drain(frame)

    def _compute_again(self, batch_id: int, recorded: str, frame: DataFrame, why: str) -> None:
        found = facts_in(recorded).get("fingerprint")
        written = None if found is None else Fingerprint(*found)
        logger.warning(
            "%s: epoch %d stands, and is computed once more for its state: %s. %s",
            self._run,
            batch_id,
            why,
            "Its rows are compared with those that were written"
            if written is not None
            else "If the query gives another result now (a table that has changed, rand(), a "
            "lookup), state and output disagree from here on: its record does not say which rows "
            "were written",
        )
        self._refuse_unnamed_state()
        if written is None:
            drain(frame)
            return
        now = self._jobs(FingerprintTask()).fingerprint(frame)
        if now == written:
            logger.info("%s: epoch %d gives the rows that stand", self._run, batch_id)
            return
        differs = (
            f"{self._run}: epoch {batch_id} stands in the sinks. It was computed once more for "
            f"its state, because {why}; and the result is another one: {written.against(now)}. "
            "State and output would disagree from here on."
        )
        if self._accepts_difference:
            logger.warning("%s %s=warn lets the query go on with it.", differs, ON_DIFFERENCE)
            return
        raise CheckpointRefused(
            "RESULT_DIFFERS",
            f"{differs} What may differ: a table or a service that the query looks things up in, "
            "rand(), uuid(), the order of rows behind a shuffle, the query itself. Give it what it "
            "had when the rows were written, and start again; or restore a savepoint; or begin "
            f"with a new checkpoint. {ON_DIFFERENCE}=warn accepts the difference. Nothing was "
            "written.",
        )


def facts_in(recorded: str) -> dict[str, Any]:
    """What ``CommittedEpochs.record`` has said."""
    return dict(json.loads(recorded)) if recorded else {}


class DecidedEpochs(CommittedEpochs):
    """In a classic session, where Spark's plans are at hand, nothing is computed again.

    State stores write their next version in the job that writes the sinks, so when an epoch is
    decided, the state that belongs to it is there. What Spark takes from an executed plan besides
    is recorded with the decision and put back: the greatest event time of each watermark, and the
    ids of the versions of the state (docs/adr/0020).
    """

    def __init__(self, run: Run, control: Sequence[ControlListener], jobs: Jobs) -> None:
        super().__init__(run, control, jobs)
        self._plan = BatchPlan(run.session, run.execution)

    def has_state(self) -> bool:
        """See the base class."""
        try:
            return bool(self._plan.state_operators())
        except JvmError:
            return True

    def _known_to_spark(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "watermarks_ms": [mark.greatest_ms() for mark in self._plan.watermarks()]
        }
        operators = self._plan.state_operators() if self._has_ids else []
        ids = {str(one.operator_id()): self._plan.ids_of(one) for one in operators}
        return {**facts, "state_ids": ids}

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
        except (NotWhole, OSError, ExactumError) as why:
            return str(why)
        except JvmError as error:
            return f"Spark did not answer: {error}"
        return ""


class NotWhole(Exception):
    """The state that belongs to an epoch is not all there."""


def stores_with_ids(
    session: SparkSession, operator: StateOperator, ids: Sequence[Sequence[str]] | None
) -> list[tuple[int, str]]:
    """The stores (partition, name) of an ``operator`` of the batch at hand whose next versions have
    these ``ids``, whatever else was written since: each try of a task has an id of its own.

        <state>/<operator>/<partition>/[<store>/]8_<id>.changelog

    What came before was there when the batch began, and Spark rests on it in any case.

    Raises:
        NotWhole: one is missing or empty, or the record has no ids.
        OSError: the local folder could not be read.
        ExactumError: the JVM could not read the folder.
    """
    folder, version = f"{operator.location()}/{operator.operator_id()}", operator.version() + 1
    if ids is None:
        raise NotWhole(f"its record does not name the state of {folder}")
    found = _stores_of(session, folder, version)
    wanted = [(partition, one) for partition, own in enumerate(ids) for one in own]
    for partition, one in wanted:
        if (partition, one) not in found:
            raise NotWhole(f"{folder}/{partition} has no version {version} with the id {one}")
    partitions = operator.partitions()
    if len(ids) != partitions:
        raise NotWhole(f"{folder} has {partitions} partitions, and its record names {len(ids)}")
    return [(partition, found[partition, one]) for partition, one in wanted]


def _stores_of(session: SparkSession, operator: str, version: int) -> dict[tuple[int, str], str]:
    """By partition and id the store of each file of ``version`` below the folder ``operator``, a
    URI as Spark prints it, that is not empty.
    """
    patterns = f"[0-9]*/{version}[._]*", f"[0-9]*/*/{version}[._]*"
    folder = local_folder(operator)
    # The whole of a version in two calls of the file system. In a local folder's own name Hadoop
    # would take brackets for a pattern.
    files = (
        HadoopFiles(session, operator).like(patterns)
        if folder is None
        else ((str(p), p.stat().st_size) for each in patterns for p in folder.glob(each))
    )
    found: dict[tuple[int, str], str] = {}
    for path, size_bytes in files:
        *_, above, inner, name = path.split("/")
        match = VERSION_FILE.fullmatch(name)
        partition, store = (inner, DEFAULT) if inner.isdigit() else (above, inner)
        if match is not None and size_bytes and partition.isdigit():
            found[int(partition), match[2] or ""] = store
    return found
