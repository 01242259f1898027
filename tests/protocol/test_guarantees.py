"""The three guarantees in memory: they differ in how a batch is written, not in how a start begins. A
fault at every port call.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from exactum import events
from exactum.errors import CheckpointRefused, ExactumError, Fenced
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    Incarnation,
    PreparedTransaction,
    SourceOffsets,
)
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Guarantee, QueryRun, WriteOrder
from exactum.protocol.weaker_guarantees import AtLeastOnce, AtMostOnce
from exactum.testing import Crash, Fault, FaultPlan, MemoryDecisionLog, MemoryStorage, faulty, sweep
from model.memory import MemoryParticipant, MemoryTarget, MemoryWrite

EXACTLY, LEAST, MOST = Guarantee
KINDS = {EXACTLY: Coordinator, LEAST: AtLeastOnce, MOST: AtMostOnce}
BATCHES = 3
NO_FAULT = FaultPlan(Fault.CRASH_BEFORE, 0)


def ends(batch_id: int) -> SourceOffsets:
    return SourceOffsets(end=(str(batch_id),))


class World:
    """What outlives the runs: a target, the decision log, which batches Spark has logged, and which
    ones each guarantee began to write.
    """

    def __init__(self, targets: int = 1, tasks: int = 1) -> None:
        self.targets = [MemoryTarget(f"t{number}") for number in range(targets)]
        self.tasks = tasks
        self.storage = MemoryStorage()
        self.logged = 0
        self.began: dict[Guarantee, set[int]] = {kind: set() for kind in Guarantee}
        self.lives = 0
        self.events: list[events.Event] = []

    def protocol(
        self, guarantee: Guarantee, plan: FaultPlan = NO_FAULT, log: DecisionLog | None = None
    ) -> Coordinator:
        self.lives += 1
        run = QueryRun("q", Incarnation(f"life {self.lives}"), guarantee)
        ports: list[Participant] = [faulty(MemoryParticipant(t, run), plan) for t in self.targets]
        log = faulty(log or MemoryDecisionLog(self.storage, "q"), plan)
        return KINDS[guarantee](run, ports, log, on_event=self.events.append)

    def ready(self, order: WriteOrder) -> None:
        self.began[order.run.guarantee].add(order.batch_id)

    def write(self, order: WriteOrder, plan: FaultPlan = NO_FAULT) -> Sequence[PreparedTransaction]:
        """Each task's second try is the one that counts. Under the weaker guarantees its rows are
        visible at once.
        """
        if order.run.guarantee is EXACTLY:
            write = MemoryWrite(
                self.targets, tasks=self.tasks, retried=self.tasks, around=plan.around
            )
            return write(order)
        for task in range(self.tasks):
            for target in self.targets:
                plan.around("row not sent", lambda: None)
                target.visible.append(MemoryWrite.row(order.batch_id, task))
                plan.around("row sent", lambda: None)
        return ()

    def live(
        self, guarantee: Guarantee, plan: FaultPlan = NO_FAULT, batches: int = BATCHES
    ) -> None:
        """One run of the query, to the end or to the fault."""
        protocol = self.protocol(guarantee, plan)
        for batch_id in range(self.logged, batches):
            protocol.run(
                batch_id, ends(batch_id), lambda order: self.write(order, plan), self.ready
            )
            protocol.sweep_own(batch_id)
            protocol.prune(batch_id)
            self.logged = batch_id + 1

    def struck(self, guarantee: Guarantee, plan: FaultPlan) -> None:
        try:
            self.live(guarantee, plan)
        except (Crash, ExactumError):
            return

    def check(self, batches: int = BATCHES) -> None:
        """Nothing is open. Only what a weaker guarantee began may be there twice, or not at all."""
        for target in self.targets:
            assert (target.unsettled(), target.violations) == ([], [])
            rows = Counter(target.visible)
            for batch_id, task in itertools.product(range(batches), range(self.tasks)):
                count = rows.pop(MemoryWrite.row(batch_id, task), 0)
                assert count >= 1 or batch_id in self.began[MOST], f"batch {batch_id} is lost"
                assert count <= 1 or batch_id in self.began[LEAST], f"batch {batch_id}: {count}"
            assert not rows


# ---- a fault at every call -----------------------------------------------------------------------


@pytest.mark.parametrize("expires", [False, True], ids=["in time", "expired"])
@pytest.mark.parametrize("then", Guarantee)
@pytest.mark.parametrize("first", Guarantee)
def test_a_run_dies_and_another_goes_on(first: Guarantee, then: Guarantee, expires: bool) -> None:
    """Crash, lost reply or repetition at every call of the first run. What it decided stands once,
    also where it has timed out meanwhile; what it left open is gone before a row is written; and
    what it never began is as the later guarantee has it.
    """

    def scenario(plan: FaultPlan) -> None:
        world = World(targets=2, tasks=2)
        world.struck(first, plan)
        for target in world.targets if expires else ():
            target.expire()
        protocol, open_at_first = world.protocol(then), []

        def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
            open_at_first.extend(own for target in world.targets for own in target.unsettled())
            return world.write(order)

        for batch_id in range(world.logged, BATCHES):
            protocol.run(batch_id, ends(batch_id), write, world.ready)
        assert not open_at_first
        world.check()

    print(f"{sweep(scenario)} runs")


class DiesDecided(MemoryDecisionLog):
    """When its first COMMIT is recorded and nothing else is done yet, the process dies."""

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        stands = super().decide(record)
        if record.decision is Decision.COMMIT:
            raise Crash("decided")
        return stands


@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("then", Guarantee)
def test_a_fault_in_the_recovery(then: Guarantee, targets: int) -> None:
    """Decided and expired; the start that salvages it is struck at every call, then a third comes."""

    def scenario(plan: FaultPlan) -> None:
        world = World(targets)
        with pytest.raises(Crash):
            world.protocol(EXACTLY, log=DiesDecided(world.storage, "q")).run(
                0, ends(0), world.write, world.ready
            )
        world.targets[-1].expire()
        world.struck(then, plan)
        world.live(then)
        world.check()
        assert then is EXACTLY or 0 not in world.began[then]

    print(f"{sweep(scenario)} runs")


@pytest.mark.parametrize("seed", range(40))
def test_guarantees_that_alternate_with_kills(seed: int) -> None:
    rng = random.Random(seed)
    world = World()
    for batches in range(4, 40, 4):
        plan = FaultPlan(rng.choice(list(Fault)), rng.randint(1, 60))
        try:
            world.live(rng.choice(list(Guarantee)), plan, batches)
        except (Crash, ExactumError):
            continue
    world.live(EXACTLY, batches=44)
    world.check(44)


# ---- at least once -------------------------------------------------------------------------------


def test_what_is_not_logged_is_written_again() -> None:
    """And only a start leaves a record."""
    world = World()
    world.live(LEAST)
    world.logged = BATCHES - 1
    world.live(LEAST)
    assert world.targets[0].visible.count(MemoryWrite.row(BATCHES - 1, 0)) == 2
    assert {r.decision for r in world.storage.records.values()} == {Decision.ABORT}
    assert len(world.storage.records) == 2


def test_a_driver_that_was_frozen_is_fenced() -> None:
    """Whatever the two promise."""
    for first in Guarantee:
        for then in Guarantee:
            world = World()
            frozen = world.protocol(first)
            frozen.run(0, ends(0), world.write)
            world.logged = 1
            world.live(then, batches=2)
            with pytest.raises(Fenced):
                frozen.run(1, ends(1), world.write)
            world.check(2)


# ---- at most once --------------------------------------------------------------------------------


def test_a_batch_is_recorded_before_it_is_written() -> None:
    """The record names no transactions. What is not ready is not on record as begun."""
    world = World()
    log = MemoryDecisionLog(world.storage, "q")

    def refuse(order: WriteOrder) -> None:
        raise CheckpointRefused("not now")

    with pytest.raises(CheckpointRefused):
        world.protocol(MOST).run(0, ends(0), world.write, refuse)
    assert {record.decision for record in log.read(0)} == {Decision.ABORT}

    def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
        record = log.read(0)[-1]
        assert (record.decision, record.prepared, record.offsets) == (Decision.COMMIT, (), ends(0))
        return world.write(order)

    protocol = world.protocol(MOST)
    assert protocol.run(0, ends(0), write).written
    with pytest.raises(Fenced):
        protocol.run(0, ends(0), write)
    world.check(1)


def test_a_crash_in_the_write_is_never_repaired() -> None:
    """The next start skips the batch, says so, and goes on with the next."""
    world = World()

    def dies(order: WriteOrder) -> Sequence[PreparedTransaction]:
        raise Crash("in the write")

    with pytest.raises(Crash):
        world.protocol(MOST).run(0, ends(0), dies)
    world.events.clear()
    world.live(MOST, batches=2)
    assert [type(e) for e in world.events] == [
        events.EpochAbandoned,
        events.OlderRunsFenced,
        events.EpochCompleted,
    ]
    assert world.targets[0].visible == [MemoryWrite.row(1, 0)]


def test_of_two_incarnations_one_writes() -> None:
    """The newer one, where both have found the batch undecided."""
    world = World()

    class Overtaken(MemoryDecisionLog):
        def decide(self, record: DecisionRecord) -> DecisionRecord:
            if record.decision is Decision.COMMIT:
                world.live(MOST, batches=1)
            return super().decide(record)

    slow = world.protocol(MOST, log=Overtaken(world.storage, "q"))
    with pytest.raises(Fenced):
        slow.run(0, ends(0), world.write)
    world.check(1)


def test_other_offsets_are_refused() -> None:
    """A batch on record with other source offsets is another batch."""
    world = World()
    world.live(MOST, batches=1)
    with pytest.raises(CheckpointRefused):
        world.protocol(MOST).run(0, ends(7), world.write)
