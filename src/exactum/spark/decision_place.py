"""Where a query's decisions are recorded: from what the user gave as ``decision_log=`` to the log itself."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from exactum.errors import CheckpointRefused, SettingRefused
from exactum.files.decision_log import FileDecisionLog
from exactum.protocol.decision_log import DecisionLog
from exactum.spark import checkpoint
from exactum.spark.query import RunningQuery

DECISIONS = Path("exactum", "decisions")
"""Where the decision log lies within the checkpoint's folder."""

POSTGRES_SCHEMES = ("postgresql", "postgres")
MYSQL_SCHEMES = ("mysql", "mariadb")
OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")

KINDS = (
    "a folder on a local or shared file system (a path, or file:///path), a database (postgresql://..., mysql://...), "
    "a prefix in an object store (s3://..., gs://..., az://...), or an object with read, decide, prune and close"
)


def open_log(running: RunningQuery, decision_log: DecisionLog | str | Path | None) -> DecisionLog:
    """The decision log that the user gave, or the one in the checkpoint's folder.

    Raises:
        CheckpointRefused: the checkpoint is on a file system that cannot hold a decision log.
        SettingRefused: nothing is known that could be at the given place, or its settings are refused.
        Unavailable: the place did not answer.
    """
    if decision_log is None:
        if running.folder is None:
            raise CheckpointRefused(
                f"{running} does not lie on a local or shared file system, where exactum keeps its decision log by "
                f"default: object stores need another one. Pass decision_log= with {KINDS}, which every driver of "
                "this query sees. Nothing was written."
            )
        return FileDecisionLog(running.folder / DECISIONS, running.query_id)
    if not isinstance(decision_log, str | Path):
        return BorrowedLog(decision_log)
    place = str(decision_log)
    scheme = urlsplit(place).scheme.lower()
    if scheme in POSTGRES_SCHEMES + MYSQL_SCHEMES:
        from exactum.sql.decision_log import open_decision_log

        return open_decision_log(place, running.query_id)
    if scheme in OBJECT_SCHEMES:
        from exactum.files.object_decision_log import ObjectDecisionLog

        return ObjectDecisionLog(place, running.query_id)
    folder = checkpoint.local_folder(place)
    if folder is None:
        parts = urlsplit(place)
        # Neither the user's password nor the query, where some clients take it, is for a message.
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
        raise SettingRefused(
            f"decision_log={shown!r} is not supported: a decision log is {KINDS}. Nothing was written."
        )
    return FileDecisionLog(folder / running.query_id, running.query_id)


class BorrowedLog:
    """The user's own decision log: it outlives this run and is the user's to close."""

    def __init__(self, log: DecisionLog) -> None:
        self._log = log
        self.read = log.read
        self.decide = log.decide
        self.prune = log.prune

    def close(self) -> None:
        """Nothing: the log may serve the next run."""
