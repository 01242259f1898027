"""What outlives the processes of a simulation: storage, targets, Spark's checkpoint, and what has
happened.

The storage may be called step by step, by the decision log of named slots (``files.slot_log``) over
names in memory: so that a simulation interleaves not only the calls of the log but what happens
inside them: a record is created, the floor is looked at, a pruner marks, lists and removes. Each
call takes effect at once, as a file system's do.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar, cast

from exactum import events
from exactum.files.slot_log import SlotLog, slot_name, slots
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.ends import Noted
from exactum.protocol.model import Decision, DecisionRecord
from exactum.protocol.participant import Participant
from exactum.protocol.sink import QueryRun
from exactum.protocol.takeover import TakenOver, abort_undecided
from exactum.testing.faults import Around, interpose, straight
from exactum.testing.memory import MemoryDecisionLog, MemoryStorage
from model.memory import MemoryTarget, Row
from model.plans import MakePlans, PlansApart, SparkCheckpoint
from model.schedule import Setup

# ---- named slots in memory -------------------------------------------------------------------


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


# ---- the world -------------------------------------------------------------------------------


QUERY_ID = "simulated"


class MakeCoordinator(Protocol):
    """``Coordinator`` itself, or a broken one."""

    def __call__(
        self,
        run: QueryRun,
        participants: Sequence[Participant],
        log: DecisionLog,
        *,
        noted: Noted,
        on_event: events.Listener,
    ) -> Coordinator: ...


Abort = Callable[[str, int, Sequence[Participant], DecisionLog], TakenOver]
"""``abort_undecided`` itself, or a broken one."""
MakeLog = Callable[[Setup, SlotStorage, Around], DecisionLog]
"""A decision log whose calls, or whose storage's calls, go through the ``Around``."""


def memory_log(setup: Setup, storage: SlotStorage, around: Around) -> DecisionLog:
    """The log that ``setup`` asks for: one whose calls take effect at once, or the real one over
    named slots.
    """
    if setup.slots:
        return MemorySlotLog(storage, QUERY_ID, around)
    return interpose(MemoryDecisionLog(storage, QUERY_ID), around)


@dataclass(frozen=True)
class System:
    """What is under test. Replace a part by a broken one to see that the oracle can fail."""

    log: MakeLog = memory_log
    coordinator: MakeCoordinator = Coordinator
    abort: Abort = abort_undecided
    plans_apart: MakePlans = PlansApart


class History(dict[tuple[str, int, int], DecisionRecord]):
    """The records of a storage, and in ``made`` every one ever made, in the order of time."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[DecisionRecord] = []

    def setdefault(self, slot: tuple[str, int, int], record: DecisionRecord, /) -> DecisionRecord:
        if slot not in self:
            self.made.append(record)
        return super().setdefault(slot, record)


class World:
    """Everything that outlives a process. ``happened`` counts what did, ``trace`` tells two runs
    apart.
    """

    def __init__(self, setup: Setup, system: System) -> None:
        self.setup = setup
        self.system = system
        self.history = History()
        self.storage = SlotStorage(records=self.history)
        self.checkpoint = SparkCheckpoint()
        self.targets = [
            MemoryTarget(f"target{i}", keeps_aborted_rows=not setup.forgets)
            for i in range(setup.participants)
        ]
        self.reader_saw: list[list[Row]] = [[] for _ in self.targets]
        self.problems: list[str] = []
        self.happened: Counter[str] = Counter()
        self.trace = 0

    @property
    def timeouts(self) -> int:
        return self.happened["transactions expired"]

    def observed(self, event: events.Event) -> None:
        self.happened[type(event).__name__] += 1

    def expire(self) -> None:
        for target in self.targets:
            self.happened["transactions expired"] += target.expire()

    def lose_commit(self) -> None:
        """The first target goes back in time; its readers have seen what is not there any more."""
        self.look()
        if self.targets[0].lose_commit():
            self.happened["commits lost"] += 1
            self.reader_saw[0] = self.targets[0].visible[:]

    def put_target_back(self) -> None:
        """As ``lose_commit``, and what was lost waits nowhere."""
        self.look()
        if self.targets[0].put_back():
            self.happened["targets put back"] += 1
            self.reader_saw[0] = self.targets[0].visible[:]

    def put_log_back(self) -> None:
        """To before the newest batch's COMMIT; what was pruned by then stays so. That of a salvage
        does not go alone: nobody sees that, as docs/guarantees.md says.
        """
        commits = [r for r in self.history.made if r.decision is Decision.COMMIT]
        if not commits:
            return
        self.happened["logs put back"] += 1
        newest = [r for r in commits if r.epoch == commits[-1].epoch]
        at = self.history.made.index(newest[0])
        for record in self.history.made[at:]:
            slot = (record.epoch.batch_id, record.attempt)
            self.history.pop((record.epoch.query_id, *slot), None)
            self.storage.names.pop(slot_name(*slot), None)
        del self.history.made[at:]

    @property
    def put_back(self) -> int:
        kinds = ("commits lost", "targets put back", "logs put back")
        return sum(self.happened[kind] for kind in kinds)

    def look(self) -> None:
        """A reader who looks from time to time, between two steps: what was visible stays
        visible.
        """
        for target, before in zip(self.targets, self.reader_saw, strict=True):
            now = target.visible
            if now[: len(before)] != before:
                gone = Counter(before) - Counter(now)
                self.problems.append(f"{target.name}: {dict(gone)} was visible and is not any more")
            before[:] = now
