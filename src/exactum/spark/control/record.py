"""What decided epochs saw of a control stream, on disk: so that one that is computed again sees the
same.

    <checkpoint>/exactum/control/<topic>/00000000000000000042-<incarnation>.json
        a view: all keys and their values, the offsets up to which it goes, and the ids of the topic
        and its cluster. Read for epoch 42, and seen from there on until the topic had more.

The view itself is kept, not only how far the topic was read: compaction and retention take from the
topic what an epoch saw, and a crash may ask for it again. An epoch's decision names its file, so
one of an attempt that was never decided counts for nothing.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from exactum.checkpoint.records import VERSION, damaged, decoded
from exactum.kafka.topic import TopicIdentity
from exactum.storage.folder import Folder

_VIEW = re.compile(r"\d{20}-[0-9a-f]{16}\.json")

View = Mapping[bytes, bytes]
"""The last value of each key."""


@dataclass(frozen=True)
class Seen:
    """What an epoch sees: the view as text (``text_of``), the offsets up to which it goes, of which
    topic it is, and the file that is or would be its record.
    """

    text: str
    offsets: Mapping[int, int]
    topic: TopicIdentity
    name: str = field(compare=False)


class _Record(msgspec.Struct, frozen=True):
    """A file: ``pairs`` as ``text_of`` has them."""

    version: int
    pairs: str
    offsets: Mapping[int, int]
    topic_id: str | None
    cluster_id: str | None


class ControlRecords:
    """The records of one control stream of one query. Every method is idempotent, and raises

    CheckpointRefused: a record is damaged or missing.
    Unavailable, SettingRefused: as the folder does.
    """

    def __init__(self, folder: Path) -> None:
        self._files = Folder(folder)

    def read(self, name: str) -> Seen:
        """What is in the file that a decision names."""
        where, text = f"{self._files.where}/{name}", self._files.read(name)
        if text is None:
            raise damaged(where, "it is missing")
        try:
            record = decoded(where, text, _Record)
        except msgspec.MsgspecError as error:
            raise damaged(where, error) from error
        topic = TopicIdentity(record.topic_id, record.cluster_id)
        return Seen(record.pairs, record.offsets, topic, name)

    def newest(self) -> Seen | None:
        """That of the latest epoch; of several attempts at it, what was read the furthest. None
        where there is none.
        """
        names = self._names()
        latest = [self.read(name) for name in names if _epoch(name) == _epoch(names[-1])]
        return max(latest, key=lambda seen: sum(seen.offsets.values()), default=None)

    def create(self, seen: Seen) -> None:
        """Put it on record. Durable on return."""
        topic_id, cluster_id = seen.topic.topic_id, seen.topic.cluster_id
        record = _Record(VERSION, seen.text, seen.offsets, topic_id, cluster_id)
        self._files.open()
        self._files.create_if_absent(seen.name, msgspec.json.encode(record))

    def prune(self, below_batch_id: int) -> None:
        """Forget what only epochs saw that Spark can no longer ask for. The latest one before them
        may be what the others see, too.
        """
        older = [name for name in self._names() if int(_epoch(name)) < below_batch_id]
        self._files.delete([name for name in older if _epoch(name) != _epoch(older[-1])])

    def _names(self) -> list[str]:
        """Of the views, by epoch."""
        return sorted(filter(_VIEW.fullmatch, self._files.names()))


def record_name(batch_id: int, incarnation: str) -> str:
    """A run makes one attempt at an epoch, so no two attempts share a file."""
    return f"{batch_id:020d}-{incarnation}.json"


def _epoch(name: str) -> str:
    return name.partition("-")[0]


def text_of(view: View) -> str:
    """The view as JSON text, always the same for the same content: pairs of key and value in
    base64.
    """
    pairs = [
        [base64.b64encode(k).decode(), base64.b64encode(v).decode()]
        for k, v in sorted(view.items())
    ]
    return json.dumps(pairs, separators=(",", ":"))


def view_of(text: str) -> dict[bytes, bytes]:
    """The opposite of ``text_of``."""
    return {base64.b64decode(key): base64.b64decode(value) for key, value in json.loads(text)}
