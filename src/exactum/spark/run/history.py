"""Has the facts of this process's queries written beside their checkpoints."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from exactum.monitor.history import HISTORY
from exactum.monitor.recorder import RECORDER
from exactum.spark.switch import is_on

SETTING = "spark.exactum.history.enabled"


def keep_history(session: SparkSession, query_id: str, checkpoint: Path | None) -> None:
    """From now on this query's facts are written into its history (``monitor.history``).

    Does nothing where ``spark.exactum.history.enabled`` is false, or the checkpoint lies on no
    local or shared file system (None).
    """
    if checkpoint is not None and is_on(session, SETTING):
        HISTORY.begin(query_id, checkpoint)
        RECORDER.add(HISTORY)


def write_history() -> None:
    """What was heard until now is written. Before a run lets go of its file: who sees that it is
    over reads here how it ended, and takes it for killed where nothing stands.
    """
    RECORDER.flush(only=HISTORY)
