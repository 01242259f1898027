"""A query by its checkpoint, without Spark: who it is, how far it came, and where its decisions and
its rows are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exactum.checkpoint.decision_place import open_log
from exactum.checkpoint.known_sinks import IN_CHECKPOINT, KnownSinks, read_known_sinks
from exactum.checkpoint.offset_log import highest_batch, local_folder, lowest_batch
from exactum.checkpoint.staging_place import staging_at
from exactum.errors import CheckpointRefused, SettingRefused
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.ends import NOTHING_NOTED, Noted
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

    def known_sinks(self) -> KnownSinks | None:
        """What the checkpoint has on file of the query's sinks; None: nothing, or another query's.

        Raises:
            CheckpointRefused: the file cannot be read.
        """
        try:
            known = read_known_sinks(self.folder)
        except (OSError, ValueError) as error:
            raise CheckpointRefused(
                "CHECKPOINT_DAMAGED", f"{self}: the file of its sinks cannot be read: {error}"
            ) from error
        return known if known is not None and known.query_id == self.query_id else None

    def open_log(self) -> DecisionLog:
        """The query's decision log. The caller closes it.

        Raises:
            SettingRefused: the decisions are elsewhere, and it was not said where: the empty log
                in the checkpoint would say of everything that it is undecided.
            Unavailable: its place does not answer.
        """
        known = self.known_sinks()
        elsewhere = IN_CHECKPOINT if known is None else known.decision_log
        if self.decision_log is None and elsewhere != IN_CHECKPOINT:
            raise SettingRefused(
                "COMMAND_ARGUMENT",
                f"{self} keeps its decisions at {elsewhere}. Say so with --decision-log, as the "
                "query is told by decision_log=.",
            )
        return open_log(self, self.decision_log)

    def staging(self) -> Storage | None:
        """Where rows of the query wait until they are decided, as its last run was given it.

        Raises:
            CheckpointRefused: the file that says so cannot be read.
            SettingRefused: it names no folder.
        """
        known = self.known_sinks()
        return staging_at(self, None if known is None else known.staging or None)

    def noted(self) -> Noted:
        """What the checkpoint has on file of its decisions.

        Raises:
            CheckpointRefused: the file cannot be read.
        """
        known = self.known_sinks()
        return NOTHING_NOTED if known is None else known.noted

    def planned(self) -> int | None:
        """The highest batch that Spark has begun; None: none."""
        return highest_batch(self.folder / "offsets")

    def kept(self) -> int:
        """The lowest batch of which Spark still has the offsets; 0 where it has none."""
        return lowest_batch(self.folder / "offsets") or 0

    def finished(self) -> int | None:
        """The highest batch that Spark has logged as done; None: none."""
        return highest_batch(self.folder / "commits")
