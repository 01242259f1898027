"""Has a run's facts written beside its checkpoint."""

from __future__ import annotations

from exactum.monitor.history_outlet import HistoryOutlet
from exactum.monitor.recorder import RECORDER
from exactum.spark.run_context import RunContext

SETTING = "spark.exactum.history.enabled"
HISTORY = HistoryOutlet()
"""Of this process."""


def keep_history(context: RunContext) -> None:
    """From now on this query's facts are written into its history (``monitor.history``).

    Does nothing where ``spark.exactum.history.enabled`` is false, or the checkpoint lies on no
    local or shared file system.
    """
    folder = context.query.folder
    enabled = str(context.session.conf.get(SETTING, "true")).lower() != "false"
    if folder is not None and enabled:
        HISTORY.begin(context.run.query_id, folder)
        RECORDER.add(HISTORY)
