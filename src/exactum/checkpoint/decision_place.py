"""Where a query's decisions are recorded: from what the user gave as ``decision_log=`` to the log
itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from exactum.checkpoint import offset_log
from exactum.checkpoint.layout import DECISIONS
from exactum.checkpoint.query_record import IN_CHECKPOINT, QueryRecord
from exactum.errors import CheckpointRefused, SettingRefused
from exactum.files.slot_log import SlotLog
from exactum.protocol.decision_log import DecisionLog, Identified, PermitLog
from exactum.protocol.ends import accept_command
from exactum.protocol.model import DecisionRecord, Epoch
from exactum.storage.at import storage_at
from exactum.storage.folder import Folder

POSTGRES_SCHEMES = ("postgresql", "postgres")
MYSQL_SCHEMES = ("mysql", "mariadb")
OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")

HERE = "in the checkpoint"
KINDS = (
    "a folder on a local or shared file system (a path, or file:///path), a database "
    "(postgresql://..., mysql://...), a prefix in an object store (s3://..., gs://..., az://...), "
    "or an object with read, decide, prune and close"
)


class HasCheckpoint(Protocol):
    """A query, running or not. ``str`` of it names it in errors."""

    @property
    def query_id(self) -> str: ...

    @property
    def checkpoint(self) -> str:
        """Where it is: a folder or a URL."""

    @property
    def hadoop(self) -> Mapping[str, str]:
        """How Spark reaches object stores, see ``storage_at``; empty where no Spark is at hand."""

    @property
    def folder(self) -> Path | None:
        """The checkpoint's folder; None where it is on no local or shared file system."""


def is_object_url(place: str) -> bool:
    """Whether it names a prefix in an object store."""
    return urlsplit(place).scheme.lower() in OBJECT_SCHEMES


def open_log(query: HasCheckpoint, decision_log: DecisionLog | str | Path | None) -> DecisionLog:
    """The decision log that the user gave, or the one in the checkpoint's folder.

    Raises:
        CheckpointRefused: the checkpoint is on a file system that cannot hold a decision log.
        SettingRefused: nothing is known that could be at the given place, or its settings are
            refused.
        Unavailable: the place did not answer.
    """
    if decision_log is None:
        if query.folder is None:
            raise CheckpointRefused(
                "DECISION_LOG_WANTED",
                f"{query} does not lie on a local or shared file system, where exactum keeps its "
                "decision log by default: object stores need another one. Pass decision_log= with "
                f"{KINDS}, which every driver of this query sees. Nothing was written.",
            )
        return SlotLog(Folder(query.folder / DECISIONS), query.query_id)
    if not isinstance(decision_log, str | Path):
        return BorrowedLog(decision_log, query.query_id)
    place = str(decision_log)
    scheme = urlsplit(place).scheme.lower()
    if scheme in POSTGRES_SCHEMES + MYSQL_SCHEMES:
        from exactum.sql.files import open_files

        return SlotLog(open_files(place, query.query_id), query.query_id)
    if is_object_url(place):
        store = storage_at(place, hadoop=query.hadoop)
        return SlotLog(store.below(query.query_id), query.query_id)
    folder = offset_log.local_folder(place)
    if folder is None:
        raise SettingRefused(
            "DECISION_LOG_ARGUMENT",
            f"decision_log={shown_place(decision_log)!r} is not supported: a decision log is "
            f"{KINDS}. Nothing was written.",
        )
    return SlotLog(Folder(folder / query.query_id), query.query_id)


def shown_place(decision_log: DecisionLog | str | Path | None) -> str:
    """Where it is, for a message or a file: without user, password and query, where some clients
    take one. ``IN_CHECKPOINT`` for the default; a folder's whole path.
    """
    if decision_log is None:
        return IN_CHECKPOINT
    if not isinstance(decision_log, str | Path):
        return f"an object of {type(decision_log).__module__}.{type(decision_log).__qualname__}"
    folder = offset_log.local_folder(str(decision_log))
    if folder is not None:
        return str(folder.absolute())
    parts = urlsplit(str(decision_log))
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def refuse_another_log(
    query: HasCheckpoint, record: QueryRecord, log: DecisionLog | PermitLog, place: str, begins: int
) -> None:
    """``log`` at ``place`` is what is given for a query that goes on with batch ``begins``. By
    another one than it had, what is decided would be written again, or aborted.

    Raises:
        CheckpointRefused: it is not the one on record.
        Unavailable: it did not answer.
    """
    if record.log_id is None or not isinstance(log, Identified):
        return
    found = log.log_id()
    if found == record.log_id:
        return
    had = f"the log {record.log_id} ({record.decision_log or HERE})"
    given = f"{'empty' if found is None else found} ({place or HERE})"
    raise CheckpointRefused(
        "DECISION_LOG_OTHER",
        f"{query} has its decisions in {had}, and the one at hand is {given}. Nothing was "
        "changed.\nGive decision_log= (to a command --decision-log) as before: mounted, with its "
        f"whole path. If that log is lost, or left on purpose: {accept_command(begins)}",
    )


class BorrowedLog:
    """The user's own decision log: it outlives this run and is the user's to close."""

    def __init__(self, log: DecisionLog, query_id: str) -> None:
        self._log = log
        self._query_id = query_id
        self.prune = log.prune

    def read(self, batch_id: int) -> Sequence[DecisionRecord]:
        """See the port."""
        records = self._log.read(batch_id)
        for record in records:
            self._refuse_foreign(record, batch_id)
        return records

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        """See the port."""
        stands = self._log.decide(record)
        self._refuse_foreign(stands, record.epoch.batch_id)
        return stands

    def _refuse_foreign(self, record: DecisionRecord, batch_id: int) -> None:
        """
        Raises:
            CheckpointRefused: the record is another query's, or another batch's.
        """
        if record.epoch != Epoch(self._query_id, batch_id):
            raise CheckpointRefused(
                "LOG_OTHER_QUERY",
                f"The decision log given as decision_log= answered for batch {batch_id} of query "
                f"{self._query_id} with a record that belongs to query {record.epoch.query_id}, "
                f"batch {record.epoch.batch_id}. Taken for this one's own, it would make rows "
                "vanish. Give each query a decision log object of its own, or one that keeps "
                "records by query id. Nothing of this batch was written.",
            )

    def log_id(self) -> str | None:
        """One that has no id is known by its class."""
        return self._log.log_id() if isinstance(self._log, Identified) else shown_place(self._log)

    def close(self) -> None:
        """Nothing: the log may serve the next run."""
