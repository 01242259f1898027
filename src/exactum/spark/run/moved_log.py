"""A start whose decision log is not the last run's: ``decision_log=`` is another one, or the place
is empty now (a mount that is not there, records that were removed).

Whether the batch at hand is decided is on record in the other log. The one at hand says of it that
it is not, and its rows would be written again.
"""

from __future__ import annotations

import logging

from exactum.checkpoint.decision_place import folder_at
from exactum.checkpoint.known_sinks import KnownSinks, read_known_sinks
from exactum.checkpoint.layout import SINKS
from exactum.errors import CheckpointRefused, InvariantBroken
from exactum.files.decision_log import FileDecisionLog
from exactum.files.slot_log import SlotLog
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.lost_decision import RECENT_BATCHES
from exactum.protocol.model import Decision, DecisionRecord, Epoch
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
    known = _known_before(context)
    before = None if known is None else known.decision_log
    if known is None or before is None:
        return
    if before == place:
        if known.decided is not None and _is_empty(log, batch_id, known.decided):
            raise _refused_empty(context, known.decided, _shown(context, place))
        return
    if log.read(batch_id) or (batch_id > 0 and log.read(batch_id - 1)):
        return
    folder = folder_at(context.query, before)
    shown = _shown(context, before)
    if folder is None or not folder.is_dir():
        raise _refused(context, "may be decided", shown, "That one cannot be looked at from here. ")
    other = FileDecisionLog(folder, context.run.query_id)
    try:
        if known.decided is not None and _is_empty(other, batch_id, known.decided):
            raise _refused_empty(context, known.decided, shown)
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


def _known_before(context: RunContext) -> KnownSinks | None:
    """What the last run has left on file; None where nobody knows."""
    if context.query.folder is None:
        return None
    try:
        known = read_known_sinks(context.query.folder)
    except (OSError, ValueError):  # FormerSinks warns
        return None
    return known if known is not None and known.query_id == context.run.query_id else None


def _shown(context: RunContext, place: str) -> str:
    folder = folder_at(context.query, place)
    return place if folder is None else str(folder)


def _is_empty(log: DecisionLog, batch_id: int, decided: int) -> bool:
    """Whether it has no record at all, as far as it can be asked: not of the batch at hand, of the
    last ones before it, nor of one that was decided there. One that says more has records.
    """
    if isinstance(log, SlotLog):
        return log.first_batch() is None
    asked = [*range(batch_id, max(-1, batch_id - RECENT_BATCHES - 1), -1), decided]
    try:
        return not any(log.read(each) for each in asked)
    except (CheckpointRefused, InvariantBroken):
        return False


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
        f"its decisions before. {why}By the log of the decision_log= that is given now it would be "
        "written again. Give the one of before, the same way (a relative path leads from where the "
        "program is started). To change it, stop the query between two batches; move a log that is "
        "in no folder with its records, or restore a savepoint as a fork. Nothing was written."
    )


def _refused_empty(context: RunContext, decided: int, where: str) -> CheckpointRefused:
    folder = context.query.folder
    file = SINKS if folder is None else folder / SINKS
    return CheckpointRefused(
        f"{context.query}: its decision log {where} has no record at all, and it had that of batch "
        f"{decided}. It is not mounted, was emptied, or is another one. Batch "
        f"{context.first_batch_id} may have been decided there and be in the targets: by an empty "
        "log it would be written again. Mount or restore the log, then start again. If it is lost, "
        f"look whether rows of batch {context.first_batch_id} are in a target. If there are none, "
        f'take the line with "decided" out of {file}, and start again; else start with a new '
        "checkpoint location behind it. Nothing was written."
    )
