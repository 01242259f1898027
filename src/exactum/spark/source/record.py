"""What a query's checkpoint keeps about each of its sources: which topics they were.

    <checkpoint>/exactum/source/<n>/topics/<topic>.json
        {"version": 1, "topic": "orders", "topic_id": ..., "partitions": 2}

``n`` is Spark's number of the source (``sources/<n>``). A file is created once, whole and durable,
and never changed. It stays when the topic seems to be deleted, or is hidden from this user: the id
tells, when it is there again. It is removed when Spark goes on without the topic, which only a
source does that accepts losses.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from exactum.checkpoint.layout import SOURCES
from exactum.checkpoint.record_folder import VERSION, FolderFiles
from exactum.durable import sync_folder
from exactum.errors import Unavailable
from exactum.kafka.requests.topic_requests import TopicSeen
from exactum.spark.source.query_sources import RunningSource


@dataclass(frozen=True)
class SourceRecord:
    """The record of one source, below ``folder``. All of it is read and written by the driver
    alone.
    """

    folder: Path

    @staticmethod
    def of(checkpoint: Path | None, source: RunningSource) -> SourceRecord | None:
        """The record in a checkpoint's folder; None where the checkpoint lies in no folder."""
        if checkpoint is None or source.metadata is None:
            return None
        return SourceRecord(checkpoint / SOURCES / source.metadata.rpartition("/")[2])

    def topics(self) -> dict[str, TopicSeen]:
        """The topics on record, as they were when they were first read.

        Raises:
            CheckpointRefused: a file is damaged or of a newer version.
        """
        found = {}
        files = self._files()
        for name in sorted(files.names()):
            value = files.read(name)
            found[str(value["topic"])] = TopicSeen(value["topic_id"], int(value["partitions"]))
        return found

    def add_topic(self, name: str, topic: TopicSeen) -> None:
        """Put a topic on record if it is not there yet. Idempotent.

        Raises:
            CheckpointRefused: the folder may not be written.
            Unavailable: it could not be: a full disk.
        """
        value = {
            "version": VERSION,
            "topic": name,
            "topic_id": topic.topic_id,
            "partitions": topic.partitions,
        }
        self._files().create(f"{name}.json", value)

    def forget_topic(self, name: str) -> None:
        """Take a topic off the record, durably: the query goes on without it. Idempotent.

        Raises:
            Unavailable: the file system failed.
        """
        path = self._files().folder / f"{name}.json"
        try:
            path.unlink(missing_ok=True)
            if path.parent.is_dir():
                sync_folder(path.parent)
        except OSError as error:
            raise Unavailable(
                f"exactum could not remove {path} ({error}); start the query again."
            ) from error

    def _files(self) -> FolderFiles:
        return FolderFiles(self.folder / "topics")
