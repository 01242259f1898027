"""Has a run's facts written beside its checkpoint."""

from __future__ import annotations

from exactum.monitor.recorder import RECORDER
from exactum.spark.run.waiting_queries import HISTORY, SETTING, WAITING
from exactum.spark.run_context import RunContext


def keep_history(context: RunContext) -> None:
    """From now on this query's facts are written into its history (``monitor.history``).

    Does nothing where ``spark.exactum.history.enabled`` is false, or the checkpoint lies on no
    local or shared file system.
    """
    WAITING.begun(context.query.run_id)
    folder = context.query.folder
    enabled = str(context.session.conf.get(SETTING, "true")).lower() != "false"
    if folder is not None and enabled:
        HISTORY.begin(context.run.query_id, folder)
        RECORDER.add(HISTORY)
