"""What outlives the processes of a simulation: storage, targets, Spark's checkpoint, and what has
happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from exactum import events
from exactum.files.slot_log import slot_name
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.ends import Noted
from exactum.protocol.model import Decision, DecisionRecord, Sighting
from exactum.protocol.participant import Participant
from exactum.protocol.sink import QueryRun
from exactum.protocol.takeover import TakenOver, abort_undecided
from exactum.testing.faults import interpose
from exactum.testing.memory import Around, MemoryDecisionLog, MemoryTarget, Row
from exactum.testing.memory_slots import MemorySlotLog, SlotStorage
from exactum.testing.schedule import Setup

QUERY_ID = "simulated"


class SparkStopped(Exception):
    """Spark found that another query had written its batch to the checkpoint."""


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


Abort = Callable[
    [str, int, Sequence[Participant], DecisionLog, Callable[[Sighting], bool]], TakenOver
]
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


@dataclass
class SparkCheckpoint:
    """Spark's offset log and commit log: create-if-absent, and the restart rule."""

    offsets: set[int] = field(default_factory=set)
    commits: set[int] = field(default_factory=set)

    def first_batch(self) -> int:
        latest = max(self.offsets, default=-1)
        return latest + 1 if latest == -1 or latest in self.commits else latest

    @staticmethod
    def add(log: set[int], batch_id: int) -> None:
        if batch_id in log:
            raise SparkStopped(f"batch {batch_id} is there already")
        log.add(batch_id)


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
