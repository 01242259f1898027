"""What the checkpoint has on file of the decision log that a start is given; and a start whose
``decision_log=`` is another one than the last run's.

Whether the batch at hand is decided is on record in the other log. The one at hand says of it that
it is not, and its rows would be written again.
"""

from __future__ import annotations

import logging
from contextlib import closing

from exactum.checkpoint.decision_place import folder_at
from exactum.checkpoint.known_sinks import KnownSinks, read_known_sinks
from exactum.checkpoint.layout import SINKS
from exactum.checkpoint.record_folder import unread
from exactum.durable import OF_THE_SETTING
from exactum.errors import CheckpointRefused, InvariantBroken
from exactum.files.slot_log import SlotLog
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.ends import NOTHING_NOTED, Ends, Noted, accept_command, refuse_gaps
from exactum.protocol.model import Decision, DecisionRecord, Epoch
from exactum.spark.run_context import RunContext
from exactum.storage.folder import Folder

logger = logging.getLogger("exactum")


def noted_of(context: RunContext, log: DecisionLog, place: str) -> Noted:
    """What is on file of ``log``, which the user gives now, at ``place``.

    Where the last run had another one, that is asked if it is a folder that is there. An ABORT
    keeps out a run that lives with it. Else the records must have come along.

    Raises:
        CheckpointRefused: the batch at hand is decided in the other log, or may be; or that one has
            lost its end.
        Unavailable: a log did not answer.
    """
    known = known_before(context)
    if known is None:
        return NOTHING_NOTED
    begins, noted = context.first_batch_id, known.noted
    if known.decision_log == place or noted.first is None or has_commit(log, begins):
        return noted
    last = noted.last(begins)
    if last is not None and has_commit(log, last):
        return noted
    folder = folder_at(context.query, known.decision_log)
    if folder is None or not folder.is_dir():
        if noted.undecided_from is not None:
            return Noted(first=begins)
        raise _refused(context, "may be decided", known.decision_log)
    with closing(SlotLog(Folder(folder), context.run.query_id)) as other:
        if last is not None and not has_commit(other, last):
            refuse_gaps(context.run.query_id, Ends(begins, other.last_batch(), last))
        if _is_decided(context, other):
            raise _refused(context, "is decided", str(folder))
    logger.info(
        "%s: decisions were recorded in %s until now; batch %d is not decided there",
        context.query,
        folder,
        begins,
    )
    return Noted(first=begins)


def read_before(context: RunContext) -> KnownSinks | None:
    """What the last run of the query has left on file. None where there is nothing: no file, or
    another query's, as in a fork; a checkpoint that lies in no folder of ours.

    Raises:
        OSError, ValueError: as ``read_known_sinks``.
    """
    if context.query.folder is None:
        return None
    known = read_known_sinks(context.query.folder)
    return known if known is not None and known.query_id == context.run.query_id else None


def known_before(context: RunContext) -> KnownSinks | None:
    """As ``read_before``; None, too, where the file is damaged.

    Raises:
        CheckpointRefused, Unavailable: the file system does not give it: a start that compares
            nothing could write rows again.
    """
    try:
        return read_before(context)
    except ValueError:  # FormerSinks warns
        return None
    except OSError as error:
        folder = context.query.folder
        file = SINKS if folder is None else folder / SINKS
        raise unread(str(file), error, error.errno in OF_THE_SETTING) from error


def has_commit(log: DecisionLog, batch_id: int) -> bool:
    """Whether a COMMIT of the batch stands. What is pruned was there; what is damaged proves
    nothing, and the coordinator says so.

    Raises:
        Unavailable: the log did not answer.
    """
    try:
        return resolve.commit_in_force(log.read(batch_id)) is not None
    except (CheckpointRefused, InvariantBroken):
        return True


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


def _refused(context: RunContext, what: str, before: str) -> CheckpointRefused:
    batch_id = context.first_batch_id
    return CheckpointRefused(
        "DECISION_LOG_MOVED",
        f"{context.query}: batch {batch_id} {what} in {before or 'the checkpoint'}, where the "
        "query had its decisions before.\nBy the log of the decision_log= that is given now it "
        "would be written again. Nothing was written.\nGive the one of before, the same way (a "
        "relative path leads from where the program is started), and change it between two "
        f"batches. If it is lost: {accept_command(batch_id)}",
    )
