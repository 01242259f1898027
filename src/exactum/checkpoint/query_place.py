"""A query by its checkpoint, with or without Spark: who it is, how far it came, and where its
decisions and its rows are, from what the user gave as ``decision_log=`` and ``staging=``.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from exactum.checkpoint import offset_log
from exactum.checkpoint.layout import DECISIONS, STAGING
from exactum.checkpoint.offset_log import COMMITS, OFFSETS, batches, highest_batch
from exactum.checkpoint.query_record import IN_CHECKPOINT, QueryRecord, record_of
from exactum.errors import CheckpointRefused, SettingRefused
from exactum.files.slot_log import SlotLog
from exactum.protocol.decision_log import DecisionLog, Identified, PermitLog
from exactum.protocol.ends import accept_command
from exactum.protocol.model import DecisionRecord, Epoch
from exactum.storage.at import storage_at
from exactum.storage.folder import Folder
from exactum.storage.storage import Storage

POSTGRES_SCHEMES = ("postgresql", "postgres")
MYSQL_SCHEMES = ("mysql", "mariadb")
OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")

METADATA = "metadata"
"""Spark's own file with the id of the query."""
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
    def files(self) -> Storage | None:
        """Its checkpoint; None where Hadoop's file systems alone get there, as on HDFS."""


LOAD_BATCH = 0
"""The only one of a batch load."""


@dataclass(frozen=True)
class BatchLoad:
    """The batch load that a user calls ``id``, as who keeps decisions knows it: a query of one
    batch, without a checkpoint. See ``HasCheckpoint``.
    """

    id: str
    hadoop: Mapping[str, str] = field(default_factory=dict, repr=False)
    checkpoint: str = ""
    files: Storage | None = None

    @property
    def query_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"exactum:load:{self.id}"))

    def __str__(self) -> str:
        return f"load {self.id!r}"


def is_object_url(place: str) -> bool:
    """Whether it names a prefix in an object store."""
    return urlsplit(place).scheme.lower() in OBJECT_SCHEMES


def files_of(checkpoint: str, hadoop: Mapping[str, str] | None = None) -> Storage | None:
    """A checkpoint as a storage; None where it is neither in a folder nor in an object store.

    Raises:
        SettingRefused: the URL cannot be, or the extra for object stores is not installed.
    """
    if is_object_url(checkpoint):
        return storage_at(checkpoint.rstrip("/"), hadoop=hadoop)
    folder = offset_log.local_folder(checkpoint)
    return None if folder is None else Folder(folder)


def place_of(place: str | Path) -> Storage:
    """Where a checkpoint or a savepoint lies, or is to lie: a folder by its whole path.

    Raises:
        SettingRefused: it is neither a folder nor a prefix in an object store, or that cannot be
            used.
    """
    files = files_of(str(place))
    if files is None:
        raise SettingRefused(
            "CHECKPOINT_FOLDER",
            f"{place} is neither a folder on a local or shared file system nor a prefix in an "
            "object store. Checkpoints elsewhere, as on HDFS, have no savepoints and no commands. "
            "Nothing was changed.",
        )
    return Folder(Path(os.path.abspath(files.root))) if isinstance(files, Folder) else files


def query_id_of(files: Storage) -> str | None:
    """The query id in Spark's own file; None: no query has begun there.

    Raises:
        CheckpointRefused: it is damaged.
    """
    text = files.read(METADATA)
    try:
        return None if text is None else str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointRefused(
            "CHECKPOINT_DAMAGED",
            f"{files.where}/{METADATA} cannot be read ({error}); docs/operations.md says how to "
            "mend a checkpoint.",
        ) from error


def open_log(query: HasCheckpoint, decision_log: DecisionLog | str | Path | None) -> DecisionLog:
    """The decision log that the user gave, or the one in the checkpoint.

    Raises:
        CheckpointRefused: the checkpoint is on a file system that cannot hold a decision log.
        SettingRefused: nothing is known that could be at the given place, or its settings are
            refused.
        Unavailable: the place did not answer.
    """
    if decision_log is None:
        if query.files is None:
            raise CheckpointRefused(
                "DECISION_LOG_WANTED",
                f"{query} lies neither in a folder nor in an object store, where exactum keeps its "
                f"decision log by default. Pass decision_log= with {KINDS}, which every driver of "
                "this query sees. Nothing was written.",
            )
        return SlotLog(query.files.below(DECISIONS), query.query_id)
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
        recorded = self._log.decide(record)
        self._refuse_foreign(recorded, record.epoch.batch_id)
        return recorded

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


# ---- rows that wait for their decision -----------------------------------------------------------


@dataclass(frozen=True)
class Places:
    """What a query was given for what it keeps: ``decision_log`` and ``staging``; None: where its
    checkpoint is.
    """

    decision_log: DecisionLog | str | Path | None = None
    staging: str | Path | None = None


def staging_at(query: HasCheckpoint, staging: str | Path | None) -> Storage | None:
    """The place that the user gave, or the one below the checkpoint; None where the checkpoint is
    in no folder and no object store, and nothing is given.

    Raises:
        SettingRefused: it is neither a folder nor a prefix in an object store.
    """
    if staging is None:
        files = query.files
        if isinstance(files, Folder):
            return _private(Path(files.root) / STAGING)
        return None if files is None else files.below(STAGING)
    place = str(staging)
    if is_object_url(place):
        return storage_at(place, hadoop=query.hadoop)
    folder = offset_log.local_folder(place)
    if folder is None:
        raise SettingRefused(
            "STAGING_PLACE",
            f"staging={place!r} is not supported: it must be a folder that the driver and all "
            "executors share, or a prefix in an object store (s3://bucket/prefix). Nothing was "
            "written.",
        )
    return _private(folder)


def _private(folder: Path) -> Folder:
    """Rows lie there in plain files: for this user alone."""
    return Folder(os.path.realpath(folder), file_mode=0o600)


def recorded_staging(query: HasCheckpoint, storage: Storage | None) -> str:
    """As it goes on file: ``IN_CHECKPOINT`` for the default, which moves with the checkpoint."""
    default = staging_at(query, None)
    if storage is None or (default is not None and default.where == storage.where):
        return IN_CHECKPOINT
    return storage.where


# ---- without Spark ---------------------------------------------------------------------------


@dataclass(frozen=True)
class QueryPlace:
    """One query's checkpoint, in a folder or an object store, without Spark. Reading it disturbs no
    driver.

    ``decision_log`` is what the query was given as ``decision_log=``, None for its default.
    """

    files: Storage
    query_id: str
    decision_log: str | None = None

    @staticmethod
    def of(checkpoint: str | Path, decision_log: str | None = None) -> QueryPlace:
        """
        Raises:
            SettingRefused: it is neither a folder nor a prefix in an object store, or that cannot
                be used.
            CheckpointRefused: no query has begun there, or its file ``metadata`` is damaged.
            Unavailable: it does not answer.
        """
        files = place_of(checkpoint)
        if isinstance(files, Folder) and not os.path.isdir(files.root):
            raise SettingRefused(
                "CHECKPOINT_FOLDER",
                f"{checkpoint} is not a folder. Give the checkpointLocation of the query, as its "
                "script does.",
            )
        query_id = query_id_of(files)
        if query_id is None:
            raise CheckpointRefused(
                "CHECKPOINT_PLACE",
                f"{files.where} is not the checkpoint of a streaming query: it has no file "
                "'metadata'. Give the query's checkpointLocation.",
            )
        return QueryPlace(files, query_id, decision_log)

    @property
    def checkpoint(self) -> str:
        """See ``HasCheckpoint``."""
        return self.files.where

    @property
    def hadoop(self) -> Mapping[str, str]:
        """See ``HasCheckpoint``: commands take it from the environment."""
        return {}

    def __str__(self) -> str:
        return f"query {self.query_id}, checkpoint {self.checkpoint}"

    def record(self) -> QueryRecord:
        """What the query has left on file.

        Raises:
            ExactumError: as ``RecordFile``.
        """
        return record_of(self.files, self.query_id).content

    def open_log(self) -> DecisionLog:
        """The query's decision log. The caller closes it.

        Raises:
            CheckpointRefused: it is not the query's own, as the empty one in the checkpoint where
                it was not said that the decisions are elsewhere.
            Unavailable: its place does not answer.
        """
        record = self.record()
        log = open_log(self, self.decision_log)
        try:
            refuse_another_log(
                self, record, log, shown_place(self.decision_log), self.first_unfinished()
            )
        except BaseException:
            log.close()
            raise
        return log

    def staging(self) -> Storage | None:
        """Where rows of the query wait until they are decided, as its last run was given it.

        Raises:
            ExactumError: as ``record``.
            SettingRefused: it names no folder.
        """
        return staging_at(self, self.record().staging or None)

    def first_unfinished(self) -> int:
        """The first batch that Spark has not logged as done: where a start would begin, or
        before.
        """
        finished = self.finished()
        return 0 if finished is None else finished + 1

    def planned(self, done: int | None) -> int | None:
        """The highest batch that Spark has begun; None: none. ``done``: what was ``finished``
        before that: a query that runs goes on meanwhile.

        Raises:
            CheckpointRefused: it has finished a later one: files are gone.
        """
        begun = highest_batch(self.files.names, OFFSETS)
        if done is not None and (begun is None or begun < done):
            raise CheckpointRefused(
                "CHECKPOINT_DAMAGED",
                f"{self} has finished micro-batch {done} (commits/), and its offsets/ end before "
                "it: files are gone. Restore the checkpoint whole.",
            )
        return begun

    def kept(self) -> int:
        """The lowest batch of which Spark still has the offsets; 0 where it has none."""
        return min(batches(self.files.names, OFFSETS), default=0)

    def finished(self) -> int | None:
        """The highest batch that Spark has logged as done; None: none."""
        return highest_batch(self.files.names, COMMITS)
