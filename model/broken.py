"""The protocol, broken on purpose in one place each: proof that the simulation can fail.

Each names the pattern of schedules that is certain to show it (for ``explore``), and what the
oracle then says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from exactum.errors import ExactumError
from exactum.protocol import resolve
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.decision_log import DecisionLog, PermitLog
from exactum.protocol.model import (
    GRANT,
    CommitPermit,
    Completed,
    Decision,
    DecisionRecord,
    Epoch,
    Incarnation,
    PreparedTransaction,
    Sighting,
    SourceOffsets,
)
from exactum.protocol.participant import Participant
from exactum.protocol.takeover import TakenOver, abort_undecided
from exactum.testing import MemoryDecisionLog, interpose
from exactum.testing.faults import Around
from model.plans import PlansApart
from model.schedule import Setup
from model.world import QUERY_ID, MemorySlotLog, SlotStorage, System


class NoFence(Coordinator):
    """Starts without a record of its own."""

    def _start(self, batch_id: int) -> resolve.Fence:
        while commit := resolve.commit_in_force(self._log.read(batch_id)):
            self._redeliver(commit)
            batch_id += 1
        return resolve.Fence(batch_id, len(self._log.read(batch_id)) - 1)


class SweepsBeforeDoor(Coordinator):
    """Aborts what it sees at its start, and sets the fence after that."""

    def _start(self, batch_id: int) -> resolve.Fence:
        self._participants.abort(
            batch_id, resolve.leftovers(self._participants.list_open(), self._log.read(batch_id))
        )
        return super()._start(batch_id)


class ListsAfterDoor(Coordinator):
    """Sweeps at its start what was opened after its fence was set."""

    def _start(self, batch_id: int) -> resolve.Fence:
        fence = super()._start(batch_id)
        self._participants.abort(batch_id, self._participants.list_open())
        return fence


class ListsAfterRecord(Coordinator):
    """Sweeps what is open at the time of the sweep."""

    def _attempt(self, batch_id, attempt, offsets, write):  # type: ignore[no-untyped-def]
        epoch = Epoch(self._run.query_id, batch_id)
        prepared = self._prepare(epoch, attempt, write)
        _, record = self._decide(epoch, attempt, offsets, prepared)
        final = self._commit(record)
        self._participants.abort(
            batch_id, resolve.leftovers(self._participants.list_open(), (record, final))
        )
        return Completed(True, 0)


class StepsOver(Coordinator):
    """Takes the next free slot, whoever stands in the one before."""

    def _run_batch(self, batch_id, offsets, write):  # type: ignore[no-untyped-def]
        if self._fence is None:
            self._fence = self._start(batch_id)
        step = resolve.at_start(self._log.read(batch_id))
        if isinstance(step, resolve.Redeliver):
            return Completed(False, 0)
        return self._attempt(batch_id, step.attempt, offsets, write)


class RedeliversNothing(Coordinator):
    """Takes a recorded COMMIT for one that was carried out, now and later."""

    def _redeliver(self, record: DecisionRecord) -> DecisionRecord:
        return record

    def _commit_again(self, sightings: Sequence[Sighting]) -> None:
        """Nothing."""


class TakesLostForLeftovers(Coordinator):
    """Forgets what it has committed."""

    def _finish(self, records: Iterable[DecisionRecord]) -> None:
        """Nothing."""

    def _refuse_lost_commit(self, batch_id: int, names: Collection[str]) -> None:
        """Nothing."""


class Silent:
    """A participant that says nothing of what its target has committed."""

    remembers = False

    def __init__(self, port: Participant) -> None:
        self._port = port

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def list_committed(
        self, is_asked: Callable[[Incarnation], bool], recent: Sequence[PreparedTransaction]
    ) -> Sequence[Sighting]:
        return ()


class ComparesNoTarget(Coordinator):
    """Takes the targets as it finds them."""

    def __init__(self, run, participants, log, **more):  # type: ignore[no-untyped-def]
        silent: list[Any] = [Silent(port) for port in participants]
        super().__init__(run, silent, log, **more)


class ComparesNoLog(ComparesNoTarget):
    """Takes the log as it finds it, as well."""

    def __init__(self, run, participants, log, *, noted, **more):  # type: ignore[no-untyped-def]
        super().__init__(run, participants, log, **more)  # type: ignore[no-untyped-call]


class ComparesNoOffsets(Coordinator):
    """Takes what is on record of a batch for the batch that Spark asks for."""

    def _run_batch(self, batch_id, offsets, write):  # type: ignore[no-untyped-def]
        if self._fence is None:
            self._fence = self._start(batch_id)
        recorded = [r.offsets for r in self._log.read(batch_id) if r.decision is Decision.COMMIT]
        return super()._run_batch(batch_id, [*recorded, offsets][0], write)


class ComparesNoPlan(PlansApart):
    """Records what Spark's file says, whatever was planned."""

    def _refuse_other_plan(self, found: SourceOffsets) -> None:
        """Nothing."""


class ComparesNoFile(PlansApart):
    """Begins where Spark's file of the batch before says that it has ended."""

    def _refuse_replaced(self, batch_id: int, log: DecisionLog) -> None:
        """Nothing."""


class GrantsAnything(PermitLog):
    """A permit for any record: two of the broken protocols below would not come far without."""

    def permit(self, record: DecisionRecord) -> CommitPermit:
        return CommitPermit(record, GRANT)


class Forger(Coordinator):
    """Commits what the log has not said to stand."""

    def __init__(self, run, participants, log, **more):  # type: ignore[no-untyped-def]
        super().__init__(run, participants, log, **more)
        self._log = GrantsAnything(log)


class CommitsFirst(Forger):
    """Makes visible, then records."""

    def _decide(self, epoch, attempt, offsets, prepared):  # type: ignore[no-untyped-def]
        verified = self._participants.verify(prepared)
        record = DecisionRecord(
            epoch, attempt, Decision.COMMIT, self._run.incarnation, verified, offsets
        )
        sightings = self._participants.list_open()
        self._commit(record)
        if self._log.decide(record) != record:
            raise self._fenced(record)
        return sightings, record


class IgnoresOthers(Forger):
    """Takes a foreign answer of the log for its own."""

    def _decide(self, epoch, attempt, offsets, prepared):  # type: ignore[no-untyped-def]
        verified = self._participants.verify(prepared)
        record = DecisionRecord(
            epoch, attempt, Decision.COMMIT, self._run.incarnation, verified, offsets
        )
        sightings = self._participants.list_open()
        self._log.decide(record)
        return sightings, record


class UndoesTheUnknown(Coordinator):
    """Takes an unknown outcome of its decision for a refusal, and cleans up."""

    def _decide(self, epoch, attempt, offsets, prepared):  # type: ignore[no-untyped-def]
        try:
            return super()._decide(epoch, attempt, offsets, prepared)
        except ExactumError as error:
            self._abandon(epoch, attempt, error)
            raise


class SweepsAfterAnyFailure(Coordinator):
    """Sweeps what is its own after a failure, also where that may have left a decision."""

    def sweep_own(self, batch_id: int) -> int:
        self._abandoned = batch_id if self._stopped is not None else None
        return super().sweep_own(batch_id)


class DoesNotVerify(Coordinator):
    """Decides without a look at what was prepared."""

    def __init__(self, run, participants, log, **more):  # type: ignore[no-untyped-def]
        super().__init__(run, participants, log, **more)
        self._participants.verify = tuple  # type: ignore[method-assign, assignment]


class SalvagesWithoutRecord(Forger):
    """Commits the copies of expired rows without recording them first."""

    def _salvage(self, permit, expired):  # type: ignore[no-untyped-def]
        fresh = [p for who, gone in expired for p in who.salvage(permit, gone)]
        return replace(permit.record, prepared=tuple(fresh))


class PrunesTooEarly(Coordinator):
    """Forgets the record of the batch that Spark may still ask for."""

    def prune(self, below_batch_id: int) -> None:
        super().prune(below_batch_id + 1)


class NoFloor(MemoryDecisionLog):
    """Forgets that it was pruned."""

    def prune(self, below_batch_id: int) -> int:
        removed = super().prune(below_batch_id)
        self._storage.floor = 0
        return removed


class LooksForTheFloorFirst(MemorySlotLog):
    """Looks for the floor before it creates a record, and not after."""

    def _record_in_force(self, name: str, record: DecisionRecord) -> DecisionRecord | None:
        return self._load(name)


class RemovesThenMarks(MemorySlotLog):
    """Removes old records, and raises the floor after that."""

    def prune(self, below_batch_id: int) -> int:
        self._remove(
            [
                n
                for n in self._list()
                if not n.startswith("floor-") and int(n.split("-")[0]) < below_batch_id
            ]
        )
        self._mark(f"floor-{below_batch_id:020d}")
        return 0


def aborts_unfenced(
    query_id: str,
    batch_id: int,
    ports: Sequence[Participant],
    log: DecisionLog,
) -> TakenOver:
    """An operator's abort of what is open and named by no COMMIT, and no record of its own."""
    for port in ports:
        port.abort(resolve.leftovers(port.list_open(), log.read(batch_id)))
    return TakenOver(None)


def aborts_what_came_later(
    query_id: str,
    batch_id: int,
    ports: Sequence[Participant],
    log: DecisionLog,
) -> TakenOver:
    """An operator's abort that lists what is open after its record was made."""
    done = abort_undecided(query_id, batch_id, ports, log)
    if done.fence is not None:
        for port in ports:
            port.abort(port.list_open())
    return done


def aborts_what_is_salvaged(
    query_id: str,
    batch_id: int,
    ports: Sequence[Participant],
    log: DecisionLog,
) -> TakenOver:
    """An operator's abort that carries nothing out on its way to the free slot."""
    seen = [s for port in ports for s in port.list_open()]
    records: list[DecisionRecord] = []
    while found := log.read(batch_id):
        records += found
        if resolve.commit_in_force(found) is None:
            break
        batch_id += 1
    attempt = len(log.read(batch_id))
    mine = DecisionRecord(
        Epoch(query_id, batch_id), attempt, Decision.ABORT, Incarnation("operator")
    )
    if log.decide(mine) == mine:
        left = resolve.leftovers(seen, records)
        for port in ports:
            port.abort([s for s in left if s.participant == port.name])
    return TakenOver(None)


def _slots(kind: type[MemorySlotLog]) -> System:
    def make(setup: Setup, storage: SlotStorage, around: Around) -> DecisionLog:
        return kind(storage, QUERY_ID, around)

    return System(log=make)


def _no_floor(setup: Setup, storage: SlotStorage, around: Around) -> DecisionLog:
    return interpose(NoFloor(storage, QUERY_ID), around)


@dataclass(frozen=True)
class Broken:
    """One broken system, the pattern and the setup that show it, and words of the oracle when they
    do.
    """

    name: str
    system: System
    pattern: str
    damage: str
    setup: Setup = field(default_factory=Setup)


BROKEN: Sequence[Broken] = (
    Broken("no fence", System(coordinator=NoFence), "a? b? a* b*", "behind the fence of nobody"),
    Broken(
        "sweep before the fence",
        System(coordinator=SweepsBeforeDoor),
        "a? b? a? b*",
        "which b aborted",
    ),
    Broken(
        "list after the fence",
        System(coordinator=ListsAfterDoor),
        "a? b? a? b*",
        "which a aborted",
        Setup(1),
    ),
    Broken(
        "list after the record",
        System(coordinator=ListsAfterRecord),
        "a? b? a* b*",
        "which a aborted",
    ),
    Broken(
        "step over a foreign record",
        System(coordinator=StepsOver),
        "a? b? a* b*",
        "behind the fence of b",
    ),
    Broken("redeliver nothing", System(coordinator=RedeliversNothing), "a? a! b*", "missing"),
    Broken("lost is left over", System(coordinator=TakesLostForLeftovers), "a? l a*", "missing"),
    Broken(
        "a target is not compared",
        System(coordinator=ComparesNoTarget),
        "a? G a*",
        "missing",
        Setup(3),
    ),
    Broken(
        "the log is not compared",
        System(coordinator=ComparesNoLog),
        "a? H b*",
        "too many",
        Setup(3),
    ),
    Broken(
        "offsets on record are not compared",
        System(coordinator=ComparesNoOffsets),
        "b3 a? b* a*",
        "target0: missing",
        Setup(plans_differ=True),
    ),
    Broken(
        "the plan is not compared",
        System(plans_apart=ComparesNoPlan),
        "b3 a? b1 a* b*",
        "is decided without",
        Setup(plans_differ=True),
    ),
    Broken(
        "the batch before is not compared",
        System(plans_apart=ComparesNoFile),
        "b? a* b*",
        "target0: missing",
        Setup(1, plans_differ=True),
    ),
    Broken("commit before the record", System(coordinator=CommitsFirst), "a? a! b*", "too many"),
    Broken(
        "any record will do", System(coordinator=IgnoresOthers), "a? b? a* b*", "which b aborted"
    ),
    Broken(
        "undo what is unknown",
        System(coordinator=UndoesTheUnknown),
        "a? a~ a* b*",
        "which a aborted",
    ),
    Broken(
        "sweep after any failure",
        System(coordinator=SweepsAfterAnyFailure),
        "a? a~ a* b*",
        "which a aborted",
        Setup(sweeps_own=True),
    ),
    Broken(
        "decide without verifying",
        System(coordinator=DoesNotVerify),
        "a? x a*",
        "not as it was verified",
    ),
    Broken(
        "salvage without a record",
        System(coordinator=SalvagesWithoutRecord),
        "a? x a? a! b*",
        "too many",
    ),
    Broken(
        "prune too early",
        System(coordinator=PrunesTooEarly),
        "a? a! b*",
        "must not end with CheckpointRefused",
    ),
    Broken("prune without a floor", System(log=_no_floor), "a? b* a*", "too many", Setup(3)),
    Broken(
        "look for the floor first",
        _slots(LooksForTheFloorFirst),
        "a? b* a*",
        "too many",
        Setup(3, slots=True),
    ),
    Broken(
        "remove, then mark",
        _slots(RemovesThenMarks),
        "a? b? a* b*",
        "too many",
        Setup(3, slots=True),
    ),
    Broken(
        "an operator aborts unfenced",
        System(abort=aborts_unfenced),
        "a? D? a? D* a*",
        "which D aborted",
        Setup(1),
    ),
    Broken(
        "an operator lists after his record",
        System(abort=aborts_what_came_later),
        "a? a! D? b? D* b*",
        "which D aborted",
        Setup(1),
    ),
    Broken(
        "an operator takes copies for leftovers",
        System(abort=aborts_what_is_salvaged),
        "a? x b? D? b? D* b*",
        "which D aborted",
        Setup(1),
    ),
)
