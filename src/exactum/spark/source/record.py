"""What a query's checkpoint keeps about each of its sources: which topics they were.

    <checkpoint>/exactum/source/<n>/topics/<topic>.json
        {"version": 1, "topic": "orders", "topic_id": ...}
    <checkpoint>/exactum/source/<n>/left-out/<topic>.json
        {"version": 1, "topic": "orders"}
    <checkpoint>/exactum/source/<n>/left-out/<topic>+<partition>.json
        {"version": 1, "topic": "orders", "partition": 1, "offset": 123}

``n`` is Spark's number of the source (``sources/<n>``). A file is created once, whole and durable,
and never changed. A topic, or a partition, is left out when the
query has gone on without it: Spark has forgotten by then how far it was read. All stays when a
topic seems to be deleted. So does one that this user may not see any more: the id tells, when it is
there again. A topic's files are removed when another one has come in its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from exactum.checkpoint.layout import SOURCES
from exactum.checkpoint.partition_offsets import Offsets
from exactum.checkpoint.record_folder import VERSION, FolderFiles
from exactum.durable import sync_folder
from exactum.errors import Unavailable
from exactum.kafka.requests.topic_requests import TopicSeen
from exactum.kafka.transaction import Partition
from exactum.spark.source.query_sources import RunningSource

OF_TOPIC = "+"
"""Between a topic and its partition in the name of a file: no topic has it in its own."""


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
        files = FolderFiles(self.folder / "topics")
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
        FolderFiles(self.folder / "topics").create(f"{name}.json", value)

    def forget_topic(self, name: str) -> None:
        """Take a topic off the record: another one has its name now. Idempotent.

        Raises:
            CheckpointRefused, Unavailable: the file system failed.
        """
        for mark in FolderFiles(self._folder_of_marks).names():
            if mark.startswith(f"{name}{OF_TOPIC}"):
                _remove(self._folder_of_marks / mark)
        _remove(self.folder / "topics" / f"{name}.json")
        _remove(self.left_out_file(name))  # last: with it alone, the next start does the rest

    def left_out_topics(self) -> set[str]:
        """The topics that the query has gone on without.

        Raises:
            CheckpointRefused: as ``topics``.
        """
        files = FolderFiles(self._folder_of_marks)
        return {str(files.read(n)["topic"]) for n in files.names() if OF_TOPIC not in n}

    def left_out_file(self, name: str) -> Path:
        """What says that the query has gone on without this topic of its record."""
        return self._folder_of_marks / f"{name}.json"

    def leave_out(self, name: str) -> None:
        """Put on record that the query goes on without the topic. Idempotent.

        Raises:
            CheckpointRefused, Unavailable: as ``add_topic``.
        """
        mark = self.left_out_file(name)
        FolderFiles(mark.parent).create(mark.name, {"version": VERSION, "topic": name})

    def take_back(self, name: str) -> None:
        """Take off the record that the query goes on without the topic. Idempotent.

        Raises:
            Unavailable: the file system failed.
        """
        _remove(self.left_out_file(name))

    def left_out_partitions(self) -> Offsets:
        """The partitions that the query has gone on without, though it reads others of their
        topic; and the next offset of each.

        Raises:
            CheckpointRefused: as ``topics``.
        """
        files = FolderFiles(self._folder_of_marks)
        marks = [files.read(name) for name in files.names() if OF_TOPIC in name]
        return {(str(m["topic"]), int(m["partition"])): int(m["offset"]) for m in marks}

    def leave_out_partition(self, partition: Partition, offset: int) -> None:
        """Put on record that the query goes on without the partition, of which it would have read
        ``offset`` next. Idempotent.

        Raises:
            CheckpointRefused, Unavailable: as ``add_topic``.
        """
        value = {"topic": partition[0], "partition": partition[1], "offset": offset}
        files = FolderFiles(self._folder_of_marks)
        files.create(self._mark(partition), {"version": VERSION, **value})

    def take_back_partition(self, partition: Partition) -> None:
        """Take off the record that the query goes on without the partition. Idempotent.

        Raises:
            Unavailable: the file system failed.
        """
        _remove(self._folder_of_marks / self._mark(partition))

    @property
    def _folder_of_marks(self) -> Path:
        return self.folder / "left-out"

    @staticmethod
    def _mark(partition: Partition) -> str:
        return f"{partition[0]}{OF_TOPIC}{partition[1]}.json"


def _remove(path: Path) -> None:
    """Durably. Idempotent."""
    try:
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_folder(path.parent)
    except OSError as error:
        raise Unavailable(
            f"exactum could not remove {path} ({error}); start the query again."
        ) from error
