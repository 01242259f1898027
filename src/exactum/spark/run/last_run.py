"""What the last run of a query has left on file (``checkpoint.known_sinks``), for a start to
compare.
"""

from __future__ import annotations

from exactum.checkpoint.decision_place import folder_at
from exactum.checkpoint.known_sinks import KnownSinks, read_known_sinks
from exactum.spark.run_context import RunContext


def known_before(context: RunContext) -> KnownSinks | None:
    """None where nobody knows: no file, or another query's, as in a fork; a checkpoint that lies in
    no folder of ours.
    """
    if context.query.folder is None:
        return None
    try:
        known = read_known_sinks(context.query.folder)
    except (OSError, ValueError):  # FormerSinks warns
        return None
    return known if known is not None and known.query_id == context.run.query_id else None


def shown_log(context: RunContext, place: str) -> str:
    """The decision log at a ``shown_place``, for a message."""
    folder = folder_at(context.query, place)
    return place if folder is None else str(folder)
