"""What every epoch saw of a control stream, on disk: so that an epoch that is run again sees the
same.

    <checkpoint>/exactum/control/<name>/00000000000000000042.json
        epoch 42: offsets, and which view
    <checkpoint>/exactum/control/<name>/view-3f2a….json
        a view: all keys and their values
    <checkpoint>/exactum/control/<name>/topic.json
        which topic it is: topic id and cluster id

The view itself is kept, not only how far the topic was read: compaction and retention take from the
topic what an epoch saw, and a crash may ask for it again. An unchanged view is written once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exactum.checkpoint.record_folder import VERSION, FolderFiles, damaged
from exactum.durable import remove
from exactum.errors import Unavailable
from exactum.kafka.topics.topic_identity import TopicIdentity

TOPIC = "topic.json"
_RECORD = re.compile(r"(\d{20})\.json")
_VIEW = re.compile(r"view-[0-9a-f]{32}\.json")

View = Mapping[bytes, bytes]
"""The last value of each key."""


@dataclass(frozen=True)
class Seen:
    """What one epoch saw: the view as text (``text_of``), its digest, and the offsets up to which
    it goes.
    """

    digest: str
    text: str
    offsets: Mapping[int, int]


class ControlRecords:
    """The records of one control stream of one query. Every method is idempotent, and raises

    CheckpointRefused: a record or its view is damaged, or the folder may not be used.
    Unavailable: the file system failed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = FolderFiles(folder)
        self._kept: set[str] = set()  # digests of views that are known to be on disk

    def read(self, batch_id: int) -> Seen | None:
        """What the epoch saw; None if none is recorded."""
        name = _record_name(batch_id)
        if name not in self._files.names():
            return None
        record = self._files.read(name)
        try:
            digest = str(record["view"])
            text = str(self._files.read(_view_name(digest))["pairs"])
            if digest_of(text) != digest:
                raise ValueError(f"the view {digest} was changed")
            return Seen(digest, text, {int(p): int(o) for p, o in record["offsets"].items()})
        except (ValueError, KeyError, AttributeError) as error:
            raise damaged(str(self._folder / name), error) from error

    def newest(self) -> Seen | None:
        """What the newest recorded epoch saw; None if there is no record."""
        batches = self._batches()
        return self.read(max(batches)) if batches else None

    def record(self, batch_id: int, seen: Seen) -> Seen:
        """Record what the epoch sees, unless that is recorded already; returns what stands. Durable
        on return.
        """
        if seen.digest not in self._kept:
            view = {"version": VERSION, "pairs": seen.text}
            self._files.create(_view_name(seen.digest), view)
            self._kept.add(seen.digest)
        offsets = {str(p): o for p, o in seen.offsets.items()}
        value = {"version": VERSION, "view": seen.digest, "offsets": offsets}
        if self._files.create(_record_name(batch_id), value):
            return seen
        return self.read(batch_id) or seen

    def topic(self) -> TopicIdentity | None:
        """Which topic was read; None if that is not on record."""
        if TOPIC not in self._files.names():
            return None
        value = self._files.read(TOPIC)
        try:
            return TopicIdentity(value["topic_id"], value["cluster_id"])
        except KeyError as error:
            raise damaged(str(self._folder / TOPIC), error) from error

    def record_topic(self, topic: TopicIdentity) -> None:
        """Put on record which topic is read, unless that is on record already. Durable on
        return.
        """
        value = {"version": VERSION, "topic_id": topic.topic_id, "cluster_id": topic.cluster_id}
        self._files.create(TOPIC, value)

    def prune(self, below_batch_id: int) -> None:
        """Forget epochs that Spark can no longer ask for, and the views that only they saw."""
        batches = self._batches()
        kept = {_record_name(b) for b in batches if b >= below_batch_id}
        if not kept or len(kept) == len(batches):
            return
        kept |= {_view_name(str(self._files.read(name)["view"])) for name in kept}
        own = [n for n in self._files.names() if _RECORD.fullmatch(n) or _VIEW.fullmatch(n)]
        for path in (self._folder / name for name in own if name not in kept):
            try:
                remove(path)
            except OSError as error:
                raise Unavailable(f"{path} could not be removed: {error}") from error
        self._kept = {digest for digest in self._kept if _view_name(digest) in kept}

    def _batches(self) -> list[int]:
        return [int(m[1]) for m in map(_RECORD.fullmatch, self._files.names()) if m]


def _record_name(batch_id: int) -> str:
    return f"{batch_id:020d}.json"


def _view_name(digest: str) -> str:
    return f"view-{digest}.json"


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


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
