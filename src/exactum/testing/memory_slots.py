"""The decision log of named slots (``files.slot_log``) over names in memory: its storage is called
step by step.

So that a simulation interleaves not only the calls of the log but what happens inside them: a
record is created, the floor is looked at, a pruner marks, lists and removes. Each call takes effect
at once, as a file system's do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

from exactum.files.slot_log import SlotLog, content_of, slots
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
        super().__init__(query_id, prune_every)
        self._storage = storage
        self._around = around

    @property
    def _where(self) -> str:
        return "memory"

    def _call(self, label: str, call: Callable[[], T]) -> T:
        return cast(T, self._around(label, call))

    def _list(self) -> list[str]:
        return self._call("list names", lambda: list(self._storage.names))

    def _bytes(self, name: str) -> bytes | None:
        return self._call("read name", lambda: self._storage.names.get(name))

    def _create(self, name: str, record: DecisionRecord) -> None:
        self._call("create name", lambda: self._link(name, record))

    def _link(self, name: str, record: DecisionRecord) -> None:
        with self._storage.lock:
            if name in self._storage.names:
                return
            self._storage.names[name] = content_of(record)
            if record.epoch.batch_id >= self._storage.floor:  # else it is void from the beginning
                slot = (self._query_id, record.epoch.batch_id, record.attempt)
                self._storage.records.setdefault(slot, record)

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._call("remove name", partial(self._unlink, name))

    def _unlink(self, name: str) -> None:
        with self._storage.lock:
            self._storage.names.pop(name, None)
            for batch_id, attempt in slots([name]):
                self._storage.records.pop((self._query_id, batch_id, attempt), None)

    def _mark(self, marker: str) -> None:
        self._call("mark floor", lambda: self._raise_floor(marker))

    def _raise_floor(self, marker: str) -> None:
        with self._storage.lock:
            self._storage.names.setdefault(marker, b"")
            self._storage.floor = max(self._storage.floor, int(marker.removeprefix("floor-")))

    def _make_durable(self) -> None:
        """Names in memory survive every process here."""

    def _remove_debris(self, names: Sequence[str]) -> None:
        """No writer leaves anything half made."""
