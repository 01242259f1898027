"""An epoch that stands in its sinks and not in Spark's commit log: it is computed once more, so
that Spark's state goes on from it, and its rows are compared with those that were written.

``decided_epoch.DecidedEpochs`` spares this where the session lets it reach Spark's state.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from pyspark.sql import DataFrame

from exactum.errors import CheckpointRefused
from exactum.protocol.sink import Guarantee, WriteOrder
from exactum.spark.control.listener import ControlListener
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.jvm.error import JvmError
from exactum.spark.query import Run
from exactum.spark.write import write_job
from exactum.spark.write.fingerprint import Fingerprint
from exactum.spark.write.writing import Writing

logger = logging.getLogger("exactum")

ON_DIFFERENCE = "spark.exactum.standingEpoch.onDifference"
"""A Spark setting: "stop", or "warn" where an epoch that had to be computed once more may have
another result than the one that stands."""


class StandingEpochs(EpochListener):
    """What a run records with each decision, and does with an epoch that stands."""

    def __init__(self, run: Run, control: Sequence[ControlListener], writing: Writing) -> None:
        self._control = control
        self._writing = writing
        self._session = run.session
        self._run = run
        self._guarantee = run.guarantee
        self._exact = self._guarantee is Guarantee.EXACTLY_ONCE
        self._fingerprint: Fingerprint | None = None

    @property
    def _accepts_difference(self) -> bool:
        return str(self._session.conf.get(ON_DIFFERENCE, "stop")) == "warn"

    # ---- what the kind of session adds -------------------------------------------------------

    def has_state(self) -> bool:
        """Whether the query keeps state. True where Spark does not say."""
        return True

    def refuse_unnamed_state(self) -> None:
        """Before the run's first batch is computed.

        Raises:
            SettingRefused: Spark keeps the query's state so that nobody can tell to which attempt
                at a batch it belongs.
        """

    def _known_to_spark(self) -> dict[str, Any]:
        """What Spark tells of the state that the batch at hand leaves."""
        return {}

    def _why_not(self, recorded: str) -> str:
        """Let Spark go on with the state that the epoch has left, as ``recorded``; else why that
        cannot be.
        """
        return "this kind of session does not reach the state that it left"

    # ------------------------------------------------------------------------------------------

    def writing(self, batch: Batch, order: WriteOrder) -> None:
        """Raises as ``refuse_unnamed_state``."""
        if batch.first:
            self.refuse_unnamed_state()

    def wrote(self, fingerprint: Fingerprint | None) -> None:
        """The fingerprint of the batch at hand, whose write job has succeeded."""
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
        if self._guarantee is Guarantee.AT_MOST_ONCE:
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
            Exception: as ``write_job.drain``.
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
            write_job.drain(frame)

    def _compute_again(self, batch_id: int, recorded: str, frame: DataFrame, why: str) -> None:
        written = _fingerprint_in(recorded)
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
        self.refuse_unnamed_state()
        if written is None:
            write_job.drain(frame)
            return
        now = self._writing.fingerprint(frame)
        if now == written:
            logger.info("%s: epoch %d gives the rows that stand", self._run, batch_id)
            return
        counts = (
            f"{written.rows} rows were written, and it gives {now.rows} now"
            if written.rows != now.rows
            else f"it gives as many rows ({now.rows}) as were written, but not the same ones"
        )
        found = (
            f"{self._run}: epoch {batch_id} stands in the sinks. It was computed once more for "
            f"its state, because {why}; and the result is another one: {counts}. State and output "
            "would disagree from here on."
        )
        if self._accepts_difference:
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


def facts_in(recorded: str) -> dict[str, Any]:
    """What ``StandingEpochs.record`` has said."""
    return dict(json.loads(recorded)) if recorded else {}


def _fingerprint_in(recorded: str) -> Fingerprint | None:
    found = facts_in(recorded).get("fingerprint")
    return None if found is None else Fingerprint(*found)
