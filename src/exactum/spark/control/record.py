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
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exactum.durable import create_whole, make_folder, sync_folder
from exactum.errors import InvariantBroken, Unavailable
from exactum.kafka.topics.topic_identity import TopicIdentity

VERSION = 1
TOPIC = "topic.json"
_RECORD = re.compile(r"(\d{20})\.json")
_VIEW = re.compile(r"view-([0-9a-f]{32})\.json")

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
    """The records of one control stream of one query. Every method is idempotent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: set[str] = set()  # digests of views that are known to be on disk

    def read(self, batch_id: int) -> Seen | None:
        """What the epoch saw; None if none is recorded.

        Raises:
            InvariantBroken: a record or its view is damaged.
            Unavailable: the file system failed.
        """
        path = self._path(batch_id)
        try:
            return self._seen(path, path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(f"The control record {path} could not be read: {error}") from error

    def newest(self) -> Seen | None:
        """What the newest recorded epoch saw; None if there is no record. Raises as ``read``."""
        batches = self._batches()
        return self.read(max(batches)) if batches else None

    def record(self, batch_id: int, seen: Seen) -> Seen:
        """Record what the epoch sees, unless that is recorded already; returns what stands. Durable
        on return.

        Raises:
            Unavailable: the file system failed.
        """
        content = {
            "version": VERSION,
            "view": seen.digest,
            "offsets": {str(p): o for p, o in seen.offsets.items()},
        }
        try:
            make_folder(self._folder)
            if seen.digest not in self._kept:
                create_whole(self._folder / f"view-{seen.digest}.json", seen.text.encode())
                self._kept.add(seen.digest)
            created = create_whole(self._path(batch_id), (json.dumps(content) + "\n").encode())
            sync_folder(self._folder)
        except OSError as error:
            raise Unavailable(
                f"The control records in {self._folder} could not be written: {error}"
            ) from error
        if created:
            return seen
        standing = self.read(batch_id)
        return standing if standing is not None else seen

    def topic(self) -> TopicIdentity | None:
        """Which topic was read; None if that is not on record.

        Raises:
            InvariantBroken: the record is damaged.
            Unavailable: the file system failed.
        """
        path = self._folder / TOPIC
        try:
            content = json.loads(path.read_bytes())
            return TopicIdentity(content["topic_id"], content["cluster_id"])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(f"The control record {path} could not be read: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise InvariantBroken(
                f"The control record {path} is damaged ({type(error).__name__}: {error}). Restore "
                "the checkpoint from a backup; without it nobody can tell which topic the rules "
                "came from."
            ) from error

    def record_topic(self, topic: TopicIdentity) -> None:
        """Put on record which topic is read, unless that is on record already. Durable on return.

        Raises:
            Unavailable: the file system failed.
        """
        content = {"version": VERSION, "topic_id": topic.topic_id, "cluster_id": topic.cluster_id}
        try:
            make_folder(self._folder)
            create_whole(self._folder / TOPIC, (json.dumps(content) + "\n").encode())
            sync_folder(self._folder)
        except OSError as error:
            raise Unavailable(
                f"The control records in {self._folder} could not be written: {error}"
            ) from error

    def prune(self, below_batch_id: int) -> None:
        """Forget epochs that Spark can no longer ask for, and the views that only they saw.

        Raises:
            Unavailable: the file system failed; the next call goes on.
        """
        batches = self._batches()
        doomed = [b for b in batches if b < below_batch_id]
        if not doomed or max(batches) < below_batch_id:
            return
        try:
            for batch in doomed:
                self._path(batch).unlink(missing_ok=True)
            named = {
                json.loads(self._path(b).read_bytes())["view"]
                for b in batches
                if b >= below_batch_id
            }
            for path in self._folder.iterdir():
                view = _VIEW.fullmatch(path.name)
                if view and view[1] not in named:
                    self._kept.discard(view[1])
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(
                f"The control records in {self._folder} could not be pruned: {error}"
            ) from error

    def _seen(self, path: Path, content: bytes) -> Seen:
        try:
            record = json.loads(content)
            digest = record["view"]
            text = (self._folder / f"view-{digest}.json").read_text()
            if digest_of(text) != digest:
                raise ValueError(f"the view {digest} was changed")
            return Seen(digest, text, {int(p): int(o) for p, o in record["offsets"].items()})
        except (ValueError, KeyError, TypeError, FileNotFoundError) as error:
            raise InvariantBroken(
                f"The control record {path} is damaged ({type(error).__name__}: {error}). Restore "
                "the checkpoint from a backup; without it nobody can tell which rules the epoch "
                "was computed with."
            ) from error

    def _batches(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Unavailable(
                f"The control records in {self._folder} could not be listed: {error}"
            ) from error
        return [int(m[1]) for m in map(_RECORD.fullmatch, names) if m]

    def _path(self, batch_id: int) -> Path:
        return self._folder / f"{batch_id:020d}.json"


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
