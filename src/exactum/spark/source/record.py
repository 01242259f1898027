"""What a query's checkpoint keeps about each of its sources: which topics they were.

    <checkpoint>/exactum/source/<n>/topics/<topic>.json
        {"version": 1, "topic": "orders", "topic_id": ...}
    <checkpoint>/exactum/source/<n>/left-out/<topic>.json
        {"version": 1, "topic": "orders"}

``n`` is Spark's number of the source (``sources/<n>``). A file is created once, whole and durable,
and never changed. Its stops are in ``stop_record``. A topic is left out when the query has
gone on without it: Spark has forgotten by then how far it was read. A topic's files are removed
when the query has gone on without the topic because it was deleted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactum.checkpoint.layout import SOURCES
from exactum.durable import OF_THE_SETTING, create_whole, make_folder, sync_folder
from exactum.errors import CheckpointRefused, Unavailable
from exactum.kafka.requests.topic_requests import TopicSeen
from exactum.spark.source.query_sources import RunningSource

VERSION = 1


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
        for path in sorted(listed(self.folder / "topics")):
            value = read_file(path)
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
        create_file(self.folder / "topics" / f"{name}.json", value)

    def forget_topic(self, name: str) -> None:
        """Take a topic off the record: the query goes on without it. Idempotent.

        Raises:
            Unavailable: the file system failed.
        """
        _remove(self.left_out_file(name))
        _remove(self.folder / "topics" / f"{name}.json")

    def left_out_file(self, name: str) -> Path:
        """What says that the query has gone on without this topic of its record."""
        return self.folder / "left-out" / f"{name}.json"

    def leave_out(self, name: str) -> None:
        """Put on record that the query goes on without the topic. Idempotent.

        Raises:
            CheckpointRefused, Unavailable: as ``add_topic``.
        """
        create_file(self.left_out_file(name), {"version": VERSION, "topic": name})


def listed(folder: Path) -> list[Path]:
    """The files of a record below ``folder``, in no order."""
    return [path for path in folder.glob("*.json") if not path.name.startswith(".")]


def create_file(path: Path, value: dict[str, Any]) -> bool:
    """Create the file, whole, if it is absent, and make it durable. False if it was there.

    Raises:
        CheckpointRefused: the folder may not be written.
        Unavailable: it could not be: a full disk.
    """
    try:
        make_folder(path.parent)
        created = create_whole(path, json.dumps(value).encode())
        sync_folder(path.parent)
    except OSError as error:
        what = f"exactum could not write {path} ({error}), where it records what this query reads."
        if error.errno in OF_THE_SETTING:
            raise CheckpointRefused(
                f"{what} The checkpoint must be in a folder that this user may write to. Nothing "
                "of this batch was written."
            ) from error
        raise Unavailable(
            f"{what} Nothing of this batch was written; start the query again."
        ) from error
    return created


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


def read_file(path: Path) -> dict[str, Any]:
    """What such a file says.

    Raises:
        CheckpointRefused: it is damaged or of a newer version.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        version = value["version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointRefused(
            f"{path} cannot be read ({type(error).__name__}: {error}): it says what this query "
            "reads. Restore it from a backup of the checkpoint. Nothing of this batch was written."
        ) from error
    if version != VERSION:
        raise CheckpointRefused(
            f"{path} has version {version}; this exactum reads version {VERSION}. The query was "
            "last run by a newer exactum: install that one again. Nothing of this batch was "
            "written."
        )
    return dict(value)
