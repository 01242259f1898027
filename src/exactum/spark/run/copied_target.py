"""A start whose sink is at a place where nothing on file says that the query has written before: a
database by another name may be an older copy of the former one. Where the decision log still has
what it ends with, the coordinator knows it by that (``Accountable``).
"""

from __future__ import annotations

from collections.abc import Sequence

from exactum.errors import CheckpointRefused, InvariantBroken
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.lost_commit import committed_of
from exactum.protocol.lost_decision import recent
from exactum.protocol.model import DecisionRecord
from exactum.protocol.participant import Renamable
from exactum.protocol.sink import OpenSink
from exactum.spark.run.last_run import known_before
from exactum.spark.run_context import RunContext


def refuse_copied_target(
    context: RunContext, log: DecisionLog, sinks: Sequence[tuple[str, OpenSink]]
) -> None:
    """``sinks`` are the run's, with their participants' names.

    Raises:
        CheckpointRefused: a target may lack batches that its original has.
        Unavailable: the log or a target did not answer.
    """
    known = known_before(context)
    before = [] if known is None else [sink.trace for sink in known.sinks]
    for name, sink in sinks:
        if not isinstance(sink.participant, Renamable) or sink.trace in before:
            continue
        for record in _finished(log, context.first_batch_id):
            its = [p for p in record.of(name) if p.rows]
            if not its:
                continue
            text = sink.participant.older_copy(
                record.epoch.batch_id,
                its,
                lambda batch_id, name=name: committed_of(log, batch_id, name) is not None,  # type: ignore[misc]
            )
            if text:
                raise CheckpointRefused(text)
            break


def _finished(log: DecisionLog, begins: int) -> list[DecisionRecord]:
    """COMMITs in force of the last batches that are over, the newest first."""
    try:
        log.read(begins)  # first: see ``cut_log``
    except (CheckpointRefused, InvariantBroken):  # the coordinator says so
        return []
    found = recent(log, begins)
    batches = sorted({record.epoch.batch_id for record in found}, reverse=True)
    each = (resolve.standing_commit([r for r in found if r.epoch.batch_id == b]) for b in batches)
    return [record for record in each if record is not None]
