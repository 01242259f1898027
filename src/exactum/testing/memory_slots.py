"""The decision log of named slots (``files.slot_log``) over names in memory: its storage is called
step by step.

So that a simulation interleaves not only the calls of the log but what happens inside them: a
record is created, the floor is looked at, a pruner marks, lists and removes. Each call takes effect
at once, as a file system's do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

from exactum.files.slot_log import SlotLog, slots
from exactum.protocol.model import DecisionRecord
from exactum.testing.memory import Around, MemoryStorage, straight

T = TypeVar("T")


@dataclass
class SlotStorage(MemoryStorage):
    """Names and their contents. ``records`` and ``floor`` follow them, for those who judge."""

    names: dict[str, bytes] = field(default_factory=dict)


class MemorySlotLog(SlotLog):
    """One process's log over a shared ``SlotStorage``. Prunes at once, on every call."""

    def __init__(
        self,
        storage: SlotStorage,
        query_id: str,
        around: Around = straight,
        *,
        prune_every: int = 1,
    ) -> None:
        super().__init__(_Names(storage, query_id, around), query_id, prune_every=prune_every)


class _Names:
    """See ``storage.SmallFiles``. Names in memory survive every process here, and no writer leaves
    anything half made.
    """

    where = "memory"

    def __init__(self, storage: SlotStorage, query_id: str, around: Around) -> None:
        self._storage = storage
        self._query_id = query_id
        self._around = around

    def _call(self, label: str, call: Callable[[], T]) -> T:
        return cast(T, self._around(label, call))

    def open(self, *folders: str) -> None:
        """It is there."""

    def names(self, prefix: str = "") -> list[str]:
        return self._call("list names", lambda: list(self._storage.names))

    def read(self, name: str) -> bytes | None:
        return self._call("read name", lambda: self._storage.names.get(name))

    def create_if_absent(self, name: str, content: bytes) -> bool:
        return self._call("create name", lambda: self._link(name, content))

    def _link(self, name: str, content: bytes) -> bool:
        with self._storage.lock:
            if name in self._storage.names:
                return self._storage.names[name] == content
            self._storage.names[name] = content
            if not slots([name]):  # the id of the log
                return True
            record = DecisionRecord.from_json(json.loads(content), name)
            if record.epoch.batch_id >= self._storage.floor:  # else it is void from the beginning
                slot = (self._query_id, record.epoch.batch_id, record.attempt)
                self._storage.records.setdefault(slot, record)
            return True

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._call("remove name", partial(self._unlink, name))

    def _unlink(self, name: str) -> None:
        with self._storage.lock:
            self._storage.names.pop(name, None)
            for batch_id, attempt in slots([name]):
                self._storage.records.pop((self._query_id, batch_id, attempt), None)

    def put(self, name: str, content: bytes, *, durable: bool = True) -> None:
        self._call("mark floor", lambda: self._raise_floor(name, content))

    def _raise_floor(self, marker: str, content: bytes) -> None:
        with self._storage.lock:
            self._storage.names.setdefault(marker, content)
            self._storage.floor = max(self._storage.floor, int(marker.removeprefix("floor-")))

    def sync(self, prefix: str = "") -> None:
        """It is durable."""

    def close(self) -> None:
        """It holds nothing."""
