"""What a query leaves for its next start, and for commands: one small file.

    <checkpoint>/exactum/query/<k>.json

A file is created once, whole and durable, and never changed: what the query says anew is a file
with the next number, and the highest number counts. It is written at a start, and when a topic is
read for the first time, but not with each micro-batch. It holds no secret: no password, no key.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from exactum.checkpoint.layout import QUERY
from exactum.errors import CheckpointRefused, SettingRefused, Unavailable
from exactum.protocol.ends import NOTHING_NOTED, Noted
from exactum.storage.storage import SmallFiles, Storage

T = TypeVar("T")

VERSION = 1
"""Of the small JSON records in a checkpoint."""

IN_CHECKPOINT = ""
"""What is in the checkpoint's own folder: the decision log, or the staging."""
KEPT = 2
"""How many of the newest files stay: a reader may just be at the one before the last."""
RACES_MAX = 10
_NAME = re.compile(r"(\d+)\.json")


class KnownSink(msgspec.Struct, frozen=True):
    """A sink of some run. ``name`` is its participant's; ``trace`` finds its transactions (see
    ``OpenSink.trace``); ``present``: the last run had it.
    """

    name: str
    trace: Mapping[str, str]
    present: bool = True

    @property
    def place(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.trace.items() if value)


class KnownTopic(msgspec.Struct, frozen=True):
    """A topic as it was when the query first read it."""

    topic_id: str | None
    partitions: int


class Restoration(msgspec.Struct, frozen=True):
    """The savepoint with this id, of which the checkpoint was made; as a fork, or in the place of
    the one that it is of.
    """

    savepoint: str
    fork: bool


class QueryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Of the query with this id, on this checkpoint.

    ``sinks`` are those of the last run, and former ones that were not found empty since, the newest
    first. ``decision_log`` says where its decisions are, ``log_id`` which log that is, and
    ``noted`` what is known of the decisions in it. ``staging`` is where its rows wait for them.
    ``topics`` has what each of its sources reads, by Spark's number of the source; ``settings``
    those of the last run's session that its expressions depend on. ``runs`` counts those that have
    begun to write. ``restored`` is where the checkpoint comes from; None: Spark has made it.
    """

    version: int = VERSION
    query_id: str
    decision_log: str = IN_CHECKPOINT
    log_id: str | None = None
    noted: Noted = NOTHING_NOTED
    staging: str = IN_CHECKPOINT
    sinks: tuple[KnownSink, ...] = ()
    topics: Mapping[str, Mapping[str, KnownTopic]] = msgspec.field(default_factory=dict)
    settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    runs: int = 0
    restored: Restoration | None = None

    @property
    def present(self) -> frozenset[str]:
        """The names of the last run's sinks."""
        return frozenset(sink.name for sink in self.sinks if sink.present)


class RecordStorage(Protocol):
    """What a record needs of ``storage.SmallFiles``, which says what these promise."""

    @property
    def where(self) -> str: ...

    def open(self) -> None: ...

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes | None: ...

    def create_if_absent(self, name: str, content: bytes) -> bool: ...

    def delete(self, names: Sequence[str]) -> None: ...


class RecordFile:
    """The record of one query, as this process knows it. Safe to be used by several threads.

    Every method raises

    CheckpointRefused: the files are damaged, of a newer version, or another query's.
    Unavailable, SettingRefused: as the storage does.
    """

    def __init__(self, storage: RecordStorage, query_id: str) -> None:
        self._storage = storage
        self._query_id = query_id
        self._lock = threading.Lock()
        self._is_open = False
        self._read()

    @property
    def content(self) -> QueryRecord:
        """What counts; where nothing is on file yet, a record that says nothing."""
        return self._content

    def change(self, changed: Callable[[QueryRecord], QueryRecord]) -> None:
        """Put on record what ``changed`` makes of it. Durable on return. Where another run has
        written meanwhile, it is asked again, with what that one wrote.

        Raises:
            OutcomeUnknown: it may be on record, or not.
        """
        with self._lock:
            for _ in range(RACES_MAX):
                content = changed(self._content)
                if content == self._content and self._number >= 0:
                    return
                if self._create(self._number + 1, content):
                    return
                self._read()
        raise Unavailable(f"{self._storage.where} changed {RACES_MAX} times while it was written.")

    def _read(self) -> None:
        number, record = _newest(self._storage)
        record = record or QueryRecord(query_id=self._query_id)
        if record.query_id != self._query_id:
            raise CheckpointRefused(
                "CHECKPOINT_OTHER_QUERY",
                f"The checkpoint is that of query {record.query_id} ({self._storage.where}), and "
                f"its file 'metadata' now says query {self._query_id}, of which no decision would "
                "be found.\nRestore the checkpoint whole from one moment, or start with a new "
                "checkpoint location. Nothing was written.",
            )
        self._number, self._content = number, record

    def _create(self, number: int, content: QueryRecord) -> bool:
        if not self._is_open:
            self._storage.open()
            self._is_open = True
        text = msgspec.json.format(msgspec.json.encode(content), indent=1)
        if not self._storage.create_if_absent(f"{number}.json", text):
            return False
        numbers = _numbers(self._storage)
        if numbers[0] > number:  # others have written, and swept what had this number
            self._storage.delete([f"{number}.json"])
            return False
        self._number, self._content = number, content
        self._storage.delete([f"{old}.json" for old in numbers if old <= number - KEPT])
        return True


def record_of(checkpoint: Storage, query_id: str) -> RecordFile:
    """That in a checkpoint. Raises as ``RecordFile``."""
    return RecordFile(checkpoint.below(QUERY), query_id)


def _newest(storage: RecordStorage) -> tuple[int, QueryRecord | None]:
    """The highest number that is there, -1 without any; and the record of this number."""
    for _ in range(RACES_MAX):
        number = next(iter(_numbers(storage)), -1)
        if number < 0:
            return number, None
        name = f"{number}.json"
        text = storage.read(name)
        if text is None:  # swept since
            continue
        try:
            return number, decoded(f"{storage.where}/{name}", text, QueryRecord)
        except msgspec.MsgspecError as error:
            or_else = " Or delete it, where the number before it is there."
            raise damaged(f"{storage.where}/{name}", error, or_else) from error
    raise Unavailable(f"{storage.where} changed {RACES_MAX} times while it was read.")


def _numbers(storage: RecordStorage) -> list[int]:
    """The highest first."""
    found = map(_NAME.fullmatch, storage.names())
    return sorted((int(name[1]) for name in found if name is not None), reverse=True)


# ---- what all small JSON records in a checkpoint have in common ----------------------------------


class _Versioned(msgspec.Struct):
    version: int


def decoded(where: str, text: bytes, kind: type[T]) -> T:
    """
    Raises:
        msgspec.MsgspecError: it is damaged.
        CheckpointRefused: it is of a newer version.
    """
    version = msgspec.json.decode(text, type=_Versioned).version
    if version != VERSION:
        raise CheckpointRefused(
            "RECORD_VERSION",
            f"{where} has version {version}; this exactum reads version {VERSION}. The query was "
            "last run by a newer exactum: install that one again. Nothing of this batch was "
            "written.",
        )
    return msgspec.json.decode(text, type=kind)


def damaged(where: str, why: object, or_else: str = "") -> CheckpointRefused:
    return CheckpointRefused(
        "CHECKPOINT_DAMAGED",
        f"{where} cannot be read ({why}): it is a record that this query needs. Restore it from a "
        f"backup of the checkpoint.{or_else} Nothing of this batch was written.",
    )


def listed(files: SmallFiles, folder: str, says: str, *, not_done: str = "changed") -> list[str]:
    """What is in a folder of the checkpoint; ``says`` tells what that is about. Nothing where
    there is none. One that cannot be read is not the same.

    Raises:
        CheckpointRefused: it could not be read; nothing was ``not_done``.
    """
    try:
        return files.names(folder)
    except (SettingRefused, Unavailable) as error:
        raise CheckpointRefused(
            "CHECKPOINT_ACCESS",
            f"{files.where}/{folder} says {says}, and nobody can tell: {error} Nothing was "
            f"{not_done}.",
        ) from error
