"""A query by its checkpoint, without Spark: who it is, how far it came, and where its decisions and
its rows are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exactum.checkpoint.decision_place import open_log, refuse_another_log, shown_place
from exactum.checkpoint.offset_log import highest_batch, local_folder, lowest_batch
from exactum.checkpoint.query_record import QueryRecord, record_of
from exactum.checkpoint.staging_place import staging_at
from exactum.errors import CheckpointRefused, SettingRefused
from exactum.protocol.decision_log import DecisionLog
from exactum.storage.storage import Storage


@dataclass(frozen=True)
class QueryPlace:
    """One query's checkpoint on a local or shared file system. Reading it disturbs no driver.

    ``decision_log`` is what the query was given as ``decision_log=``, None for its default.
    """

    folder: Path
    query_id: str
    decision_log: str | None = None

    @staticmethod
    def of(checkpoint: str | Path, decision_log: str | None = None) -> QueryPlace:
        """
        Raises:
            SettingRefused: it is no folder on a local or shared file system.
            CheckpointRefused: no query has begun there, or its file ``metadata`` is damaged.
        """
        folder = local_folder(str(checkpoint))
        if folder is None or not folder.is_dir():
            raise SettingRefused(
                "CHECKPOINT_FOLDER",
                f"{checkpoint} is not a folder on a local or shared file system. Give the "
                "checkpointLocation of the query, as its script does.",
            )
        try:
            query_id = str(json.loads((folder / "metadata").read_text(encoding="utf-8"))["id"])
        except FileNotFoundError as error:
            raise CheckpointRefused(
                "CHECKPOINT_PLACE",
                f"{folder} is not the checkpoint of a streaming query: it has no file 'metadata'. "
                "Give the query's checkpointLocation.",
            ) from error
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise CheckpointRefused(
                "CHECKPOINT_DAMAGED",
                f"{folder / 'metadata'} cannot be read ({error}); docs/guarantees.md says how to "
                "mend a checkpoint.",
            ) from error
        return QueryPlace(folder, query_id, decision_log)

    @property
    def checkpoint(self) -> str:
        """See ``decision_place.HasCheckpoint``."""
        return str(self.folder)

    @property
    def hadoop(self) -> Mapping[str, str]:
        """See ``decision_place.HasCheckpoint``."""
        return {}

    def __str__(self) -> str:
        return f"query {self.query_id}, checkpoint {self.folder}"

    def record(self) -> QueryRecord:
        """What the query has left on file.

        Raises:
            ExactumError: as ``RecordFile``.
        """
        return record_of(self.folder, self.query_id).content

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

    def planned(self) -> int | None:
        """The highest batch that Spark has begun; None: none."""
        return highest_batch(self.folder / "offsets")

    def kept(self) -> int:
        """The lowest batch of which Spark still has the offsets; 0 where it has none."""
        return lowest_batch(self.folder / "offsets") or 0

    def finished(self) -> int | None:
        """The highest batch that Spark has logged as done; None: none."""
        return highest_batch(self.folder / "commits")
