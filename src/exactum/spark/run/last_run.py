"""What the last run of a query has left on file (``checkpoint.known_sinks``), for a start to
compare.
"""

from __future__ import annotations

from exactum.checkpoint.decision_place import folder_at
from exactum.checkpoint.known_sinks import KnownSinks, read_known_sinks
from exactum.checkpoint.layout import SINKS
from exactum.checkpoint.record_folder import unread
from exactum.durable import OF_THE_SETTING
from exactum.errors import CheckpointRefused, InvariantBroken
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog
from exactum.spark.run_context import RunContext


def read_before(context: RunContext) -> KnownSinks | None:
    """None where there is nothing: no file, or another query's, as in a fork; a checkpoint that
    lies in no folder of ours.

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


def has_commit(log: DecisionLog, batch_id: int) -> bool | None:
    """Whether a COMMIT of the batch stands; None: it is pruned, or damaged, which proves nothing.

    Raises:
        Unavailable: the log did not answer.
    """
    try:
        return resolve.standing_commit(log.read(batch_id)) is not None
    except (CheckpointRefused, InvariantBroken):
        return None


def shown_log(context: RunContext, place: str) -> str:
    """The decision log at a ``shown_place``, for a message."""
    folder = folder_at(context.query, place)
    return place if folder is None else str(folder)
