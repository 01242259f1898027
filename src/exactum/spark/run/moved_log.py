"""A start whose decision log is not the last run's: ``decision_log=`` is another one, or the place
is empty now (a mount that is not there, records that were removed).

Whether the batch at hand is decided is on record in the other log. The one at hand says of it that
it is not, and its rows would be written again. One that has lost its newest records: ``cut_log``.
"""

from __future__ import annotations

import logging

from exactum.checkpoint.decision_place import folder_at
from exactum.errors import CheckpointRefused
from exactum.files.decision_log import FileDecisionLog
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import Decision, DecisionRecord, Epoch
from exactum.spark.run.cut_log import end_of, refused_end
from exactum.spark.run.last_run import known_before, shown_log
from exactum.spark.run_context import RunContext

logger = logging.getLogger("exactum")


def refuse_moved_log(context: RunContext, log: DecisionLog, place: str) -> None:
    """``log``, at ``place``, is what the user gives now.

    Goes on where the log has this batch, or the one before, so the records came along; and where
    the other log is a folder that is there, has records, and does not have the batch decided. There
    an ABORT keeps out a run that lives.

    Raises:
        CheckpointRefused: the batch is decided in the other log, or may be; or the log has lost
            all that it had.
        Unavailable: a log did not answer.
    """
    batch_id = context.first_batch_id
    known = known_before(context)
    before = None if known is None else known.decision_log
    if known is None or before is None:
        return
    if before == place:
        if known.decided is not None and end_of(log, batch_id) is None:
            raise refused_end(context, shown_log(context, place), known.decided, None)
        return
    if log.read(batch_id) or (batch_id > 0 and log.read(batch_id - 1)):
        return
    folder = folder_at(context.query, before)
    shown = shown_log(context, before)
    if folder is None or not folder.is_dir():
        raise _refused(context, "may be decided", shown, "That one cannot be looked at from here. ")
    other = FileDecisionLog(folder, context.run.query_id)
    try:
        if known.decided is not None and end_of(other, batch_id) is None:
            raise refused_end(context, shown, known.decided, None)
        if _is_decided(context, other):
            raise _refused(context, "is decided", shown)
    finally:
        other.close()
    logger.info(
        "%s: decisions were recorded in %s until now; batch %d is not decided there",
        context.query,
        shown,
        batch_id,
    )


def _is_decided(context: RunContext, other: DecisionLog) -> bool:
    step = resolve.at_start(other.read(context.first_batch_id))
    if isinstance(step, resolve.Redeliver):
        return True
    mine = DecisionRecord(
        Epoch(context.run.query_id, context.first_batch_id),
        step.attempt,
        Decision.ABORT,
        context.run.incarnation,
    )
    return other.decide(mine) != mine


def _refused(context: RunContext, what: str, before: str, why: str = "") -> CheckpointRefused:
    return CheckpointRefused(
        f"{context.query}: batch {context.first_batch_id} {what} in {before}, where the query had "
        "its decisions before. By the log of the decision_log= that is given now it would be "
        f"written again. {why}Give the one of before, the same way (a relative path leads from "
        "where the program is started). To change it, stop the query between two batches; move a "
        "log that is in no folder with its records, or restore a savepoint as a fork. Nothing was "
        "written."
    )
