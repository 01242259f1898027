"""A start whose decision log has lost its end: it is in a database that went back, for one, and the
targets in that database went back with it.

The log alone looks like that of a query that was stopped earlier. ``sinks.json`` says which batch
was decided last, and lies elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from exactum.checkpoint.guarantee_record import Stretches
from exactum.checkpoint.layout import SINKS
from exactum.errors import CheckpointRefused, InvariantBroken
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.lost_decision import RECENT_BATCHES
from exactum.protocol.participant import Participant, Remembering
from exactum.spark.run.last_run import has_commit, known_before, shown_log
from exactum.spark.run_context import RunContext

logger = logging.getLogger("exactum")


@runtime_checkable
class EndKnown(Protocol):
    """A decision log that can say where it ends."""

    def last_batch(self) -> int | None:
        """The highest batch that has a record; None: there is none.

        Raises:
            Unavailable: the storage failed.
        """


def refuse_cut_log(
    context: RunContext,
    log: DecisionLog,
    place: str,
    participants: Sequence[Participant],
    stretches: Stretches,
) -> None:
    """``log``, at ``place``, is what the run gets; ``participants`` are all that it has.

    Goes on, with a warning, where every target has the batch that was decided last; where that is
    the batch at hand, and every target keeps which batches it has; and where nothing on file says
    that the batches which the log lacks were decided.

    Raises:
        CheckpointRefused: the log has lost its end, and rows may be gone with it.
        Unavailable: the log or a target did not answer.
    """
    begins = context.first_batch_id
    # Of this batch first: a log that was asked for a later one sees that this one is missing.
    if has_commit(log, begins) is not False:  # where it cannot be read, the coordinator says so
        return
    known = known_before(context)
    is_on_file = known is not None and known.decision_log is not None
    if known is not None and is_on_file and known.decision_log != place:
        return  # ``moved_log`` has looked
    decided = known.decided if known is not None and is_on_file else None
    if decided is not None and _has_lost(log, begins, decided):
        _refuse(context, log, shown_log(context, place), participants, decided)
    elif decided is not None and decided >= begins:
        _refuse_again(context, log, shown_log(context, place), participants)
    elif begins > 0 and begins - 1 not in stretches:
        _warn_of_undecided(context, log, shown_log(context, place))


def end_of(log: DecisionLog, begins: int) -> int | None:
    """The last batch that has a record; None: there is none. A user's log is asked batch by batch,
    back from ``begins``, and what is pruned counts as there.
    """
    if isinstance(log, EndKnown):
        return log.last_batch()
    absent, step = begins + 1, 1
    while absent > 0 and not _has_records(log, max(0, absent - step)):
        absent, step = max(0, absent - step), 2 * step
    if absent == 0:
        return None
    there = max(0, absent - step)
    while absent - there > 1:
        middle = (there + absent) // 2
        there, absent = (middle, absent) if _has_records(log, middle) else (there, middle)
    return there


def refused_end(
    context: RunContext, where: str, decided: int, end: int | None, sinks: str = ""
) -> CheckpointRefused:
    """``decided`` was decided in the log at ``where``, which ends with ``end`` now. ``sinks`` says
    what is known of these.
    """
    begins, folder = context.first_batch_id, context.query.folder
    file = SINKS if folder is None else folder / SINKS
    ends = "has no record at all" if end is None else f"ends with batch {end}"
    gone = "batches before it that a sink lacks are" if end is None else _batches(end, begins)
    return CheckpointRefused(
        f"{context.query}: its decision log {where} {ends}, and it had that of batch {decided}. It "
        "was restored from an older copy, failed over to a server without the newest decisions, "
        f"was emptied, is not mounted, or is another one. {sinks}Batch {begins} may have been "
        "decided there and be in a sink: it would be written again. And a sink in the same "
        f"database has lost its rows as well: {gone} gone from it, for Spark never repeats them. "
        "Mount or restore the newer state, of the log and of the sinks, then start again. If it is "
        "lost, look up to which batch each sink has its rows. Load by hand what is missing: "
        f"offsets/ in the checkpoint has the source offsets of each batch. If no row of batch "
        f'{begins} is in a sink, take the line with "decided" out of {file}, and start again; else '
        "start with a new checkpoint location behind it. Nothing was written."
    )


def _has_lost(log: DecisionLog, begins: int, decided: int) -> bool:
    """Whether it lacks ``decided``, with which it ended; ``begins`` has no COMMIT. Where that, or a
    later one, was decided and is no longer on record, see ``_refuse_again``.
    """
    if decided > begins or begins == 0:
        return False
    return has_commit(log, min(decided, begins - 1)) is False


def _refuse(
    context: RunContext,
    log: DecisionLog,
    where: str,
    participants: Sequence[Participant],
    decided: int,
) -> None:
    begins = context.first_batch_id
    end = _last_commit(log, begins)
    said = [_lacks(participant, min(decided, begins - 1)) for participant in participants]
    if end is None or any(said):
        raise refused_end(context, where, decided, end, "".join(said))
    logger.warning(
        "%s: its decision log %s ends with batch %d, and it had that of batch %d: it was restored "
        "from an older copy, or failed over to a server without the newest decisions. Every sink "
        "has that batch, so the query goes on; 'exactum verify' cannot tell of batches %d to %d",
        context.query,
        where,
        end,
        decided,
        end + 1,
        begins - 1,
    )


def _refuse_again(
    context: RunContext, log: DecisionLog, where: str, participants: Sequence[Participant]
) -> None:
    """The batch at hand was finished by an earlier run, and the log does not have it as decided; of
    a copy of the checkpoint, that run may have gone on to later ones. Its rows are in every sink,
    or are gone with the log from one in the same database. A sink that keeps which batches it has
    refuses the batch where it has it. Others would write it again; what Kafka still knows of its
    transactions may be too little.
    """
    begins, folder = context.first_batch_id, context.query.folder
    silent = [repr(each.name) for each in participants if not isinstance(each, Remembering)]
    if not silent or has_commit(log, begins) is not False:  # decided since, by a run that lives
        return
    raise CheckpointRefused(
        f"{context.query}: batch {begins} was decided and finished, and its decision log {where} "
        "does not have it as decided. It was restored from an older copy, failed over to a server "
        f"without the newest decisions, or is another one. From {', '.join(silent)} nobody can "
        f"tell for certain whether the batch is there: it would be written again. Mount or restore "
        f"the newer log, then start again. If it is lost, look whether rows of batch {begins} are "
        f'in these sinks. If none is, take the line with "decided" out of '
        f"{SINKS if folder is None else folder / SINKS}, and start again; else start with a new "
        "checkpoint location behind it. Nothing was written."
    )


def _lacks(participant: Participant, decided: int) -> str:
    """What there is to say of a target that may not have the batch."""
    if not isinstance(participant, Remembering):
        return f"Sink {participant.name!r} cannot tell which batches it has. "
    last = participant.last_decided()
    if last is None:
        return f"Sink {participant.name!r} has no batch of it. "
    return "" if last >= decided else f"Sink {participant.name!r} ends with batch {last}. "


def _warn_of_undecided(context: RunContext, log: DecisionLog, where: str) -> None:
    """Spark has finished batches that are not on record. By what is on file they were never
    decided; but that may be lost, in a power cut, or there is no such file.
    """
    begins = context.first_batch_id
    if has_commit(log, begins - 1) is not False:
        return
    end = _last_commit(log, begins)
    if end is not None and end < begins - 1:
        logger.warning(
            "%s: Spark has finished batch %d, and the decision log %s ends with batch %d. "
            "Whatever wrote the batches between has recorded no decision: another sink, or a "
            "function that passes over empty batches. If nothing did, the log has lost them (a "
            "restored or failed over database), and a sink in the same place its rows: compare",
            context.query,
            begins - 1,
            where,
            end,
        )


def _last_commit(log: DecisionLog, begins: int) -> int | None:
    """The last batch with a COMMIT, as far as that is near the log's end."""
    end = end_of(log, begins)
    if end is None:
        return None
    for batch_id in range(end, max(-1, end - RECENT_BATCHES), -1):
        stands = has_commit(log, batch_id)
        if stands is None:
            break
        if stands:
            return batch_id
    return end


def _has_records(log: DecisionLog, batch_id: int) -> bool:
    try:
        return bool(log.read(batch_id))
    except (CheckpointRefused, InvariantBroken):
        return True


def _batches(end: int, begins: int) -> str:
    """Those after ``end`` and before ``begins``, and a verb."""
    if begins - end == 2:
        return f"batch {begins - 1} is"
    return f"batches {end + 1} to {begins - 1} are"
