"""A start whose decision log is not the last run's: ``decision_log=`` is another one, or the place
is empty now (a mount that is not there, records that were removed).

Whether the batch at hand is decided is on record in the other log. The one at hand says of it that
it is not, and its rows would be written again. One that has lost its newest records: ``cut_log``.
"""

from __future__ import annotations

import logging

from exactum.checkpoint.decision_place import folder_at
from exactum.checkpoint.layout import SINKS
from exactum.errors import CheckpointRefused, InvariantBroken
from exactum.files.decision_log import FileDecisionLog
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import Decision, DecisionRecord, Epoch
from exactum.spark.run.cut_log import end_of, refused_end
from exactum.spark.run.last_run import has_commit, known_before, shown_log
from exactum.spark.run_context import RunContext

logger = logging.getLogger("exactum")


def refuse_moved_log(context: RunContext, log: DecisionLog, place: str) -> None:
    """``log``, at ``place``, is what the user gives now.

    Goes on where the log has this batch as decided; where the records came along; and where the
    other log is a folder that is there, has records, and does not have the batch decided. There an
    ABORT keeps out a run that lives.

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
    if resolve.standing_commit(log.read(batch_id)) is not None:
        return
    last = known.since if known.decided is None else known.decided
    came_along = _came_along(log, batch_id, last)
    folder = folder_at(context.query, before)
    shown = shown_log(context, before)
    if folder is None or not folder.is_dir():
        if came_along:
            return
        raise _refused(context, "may be decided", shown, _out_of_sight(context, log))
    other = FileDecisionLog(folder, context.run.query_id)
    try:
        if came_along:
            if has_commit(other, batch_id):
                raise _refused(context, "is decided", shown)
            return
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


def _came_along(log: DecisionLog, batch_id: int, last: int | None) -> bool:
    """Whether the log has the other one's records: the COMMIT of the batch that was decided there
    last, or may have been. That of the batch before is no sign of it: a log that was used before
    that one has it, and an ABORT of this batch from when it was left.
    """
    if last is None or last > batch_id:  # an older exactum, or a copy of the checkpoint
        return bool(log.read(batch_id) or (batch_id > 0 and log.read(batch_id - 1)))
    try:
        return resolve.standing_commit(log.read(last)) is not None
    except CheckpointRefused:  # pruned, so it was there
        return True
    except InvariantBroken:
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


def _out_of_sight(context: RunContext, log: DecisionLog) -> str:
    """What to say, and to do, where the other log is in no folder that can be looked at."""
    batch_id, folder = context.first_batch_id, context.query.folder
    end = end_of(log, batch_id)
    has = "" if end is None else f", and the one that is given now ends with batch {end}"
    return (
        f"That one cannot be looked at from here{has}. If it is lost for good, or this is an older "
        f"copy of it, look up to which batch each sink has its rows, load by hand what is missing, "
        f"and if no row of batch {batch_id} is in a sink, take the line with "
        f'"decision_log" out of {SINKS if folder is None else folder / SINKS}, and start again. '
    )


def _refused(context: RunContext, what: str, before: str, why: str = "") -> CheckpointRefused:
    return CheckpointRefused(
        f"{context.query}: batch {context.first_batch_id} {what} in {before}, where the query had "
        "its decisions before. By the log of the decision_log= that is given now it would be "
        f"written again. {why}Give the one of before, the same way (a relative path leads from "
        "where the program is started). To change it, stop the query between two batches; move a "
        "log that is in no folder with its records, or restore a savepoint as a fork. Nothing was "
        "written."
    )
