"""Finishing what is decided without becoming a driver, in memory: after every crash, and beside
a driver.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from exactum.errors import ExactumError
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.finish import Finished, commit_decided, decided_from, finished
from exactum.protocol.model import Decision, Incarnation, SourceOffsets
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.testing import Crash, Fault, FaultPlan, MemoryDecisionLog, MemoryStorage, faulty, sweep
from model.memory import MemoryParticipant, MemoryTarget, MemoryWrite

QUERY = "query"
BATCHES = 2
TASKS = 2


class World:
    """Two targets and a log; drivers and finishers come and go."""

    def __init__(self) -> None:
        self.targets = [MemoryTarget("a"), MemoryTarget("b")]
        self.storage = MemoryStorage()

    def participants(self, who: str) -> list[Participant]:
        run = QueryRun(QUERY, Incarnation(who), Guarantee.EXACTLY_ONCE)
        return [MemoryParticipant(target, run) for target in self.targets]

    def log(self) -> MemoryDecisionLog:
        return MemoryDecisionLog(self.storage, QUERY)

    def drive(self, who: str, first: int = 0, plan: Any = None) -> None:
        """A driver that runs all batches from ``first`` on. ``plan`` goes around each call of a
        port.
        """
        ports, log = self.participants(who), self.log()
        write = MemoryWrite(self.targets, tasks=TASKS)
        if plan:
            ports, log = [faulty(port, plan) for port in ports], faulty(log, plan)
            write = MemoryWrite(self.targets, tasks=TASKS, around=plan.around)
        run = QueryRun(QUERY, Incarnation(who), Guarantee.EXACTLY_ONCE)
        coordinator = Coordinator(run, ports, log)
        for batch_id in range(first, BATCHES):
            coordinator.run(batch_id, SourceOffsets((), (str(batch_id),)), write)

    def finish(self, who: str = "finisher", batch_id: int = 0, targets: int = 2) -> list[Finished]:
        permits = decided_from(self.log(), batch_id)
        participants = self.participants(who)[:targets]
        return finished(
            permits, [done for each in participants for done in commit_decided(each, permits)]
        )

    def decided(self) -> set[str]:
        """The identities that a COMMIT names."""
        commits = [r for r in self.storage.records.values() if r.decision is Decision.COMMIT]
        return {p.identity for r in commits for p in r.prepared}

    def check_exact(self) -> None:
        expected = Counter(MemoryWrite.row(b, t) for b in range(BATCHES) for t in range(TASKS))
        for target in self.targets:
            assert Counter(target.visible) == expected
            assert target.unsettled() == []
            assert target.violations == []


def die_decided(world: World) -> None:
    """A driver that dies exactly between its first COMMIT and the first commit of a participant."""

    class Dies:
        commits = 0

        def around(self, label: str, call: Callable[[], object]) -> object:
            if "commit" in label:
                raise Crash("decided")
            return call()

    with pytest.raises(Crash):
        world.drive("dead", plan=Dies())


def test_what_is_decided_becomes_visible() -> None:
    """After a death between decision and commit the rows are there without a driver, in every
    target, once.
    """
    world = World()
    die_decided(world)
    assert [target.visible for target in world.targets] == [[], []]
    assert world.finish() == [Finished(0, transactions=4, rows=4, left=0)]
    assert world.finish() == [Finished(0, transactions=4, rows=4, left=0)]  # idempotent
    assert [len(target.visible) for target in world.targets] == [2, 2]
    world.drive("next")
    world.check_exact()


def test_after_every_crash_exactly_what_is_decided_is_finished() -> None:
    """Whichever call of a port is the last one: finishing makes visible what a COMMIT names, and
    nothing else; it sets no fence, aborts nothing, and the next driver ends exact.
    """

    def scenario(plan: FaultPlan) -> None:
        world = World()
        with contextlib.suppress(Crash, ExactumError):
            world.drive("dead", plan=plan)
        before = dict(world.storage.records)
        world.finish()
        assert world.storage.records == before
        decided = world.decided()
        for target in world.targets:
            rows = [
                row
                for identity, t in target.transactions.items()
                if identity in decided
                for row in t.rows
            ]
            assert Counter(target.visible) == Counter(rows)
            assert not [
                t
                for t in target.transactions.values()
                if t.ended_by == "finisher" and t.identity not in decided
            ]
        world.drive("next")
        world.check_exact()

    assert sweep(scenario) > 50


def test_beside_a_driver_it_changes_nothing() -> None:
    """Run before every single call that a driver makes, it neither doubles a row nor fences the
    driver.
    """
    world = World()
    calls: list[str] = []

    class Beside:
        def around(self, label: str, call: Callable[[], object]) -> object:
            calls.append(label)
            world.finish()
            result = call()
            world.finish()
            return result

    world.drive("driver", plan=Beside())
    assert len(calls) > 10
    world.check_exact()


def test_what_was_undone_is_left_to_the_driver() -> None:
    """A decided transaction that timed out is counted as left; the driver salvages it."""
    world = World()
    die_decided(world)
    expired = world.targets[0].expire()
    assert world.finish() == [Finished(0, transactions=4 - expired, rows=4 - expired, left=expired)]
    world.drive("next")
    world.check_exact()


def test_a_sink_that_is_not_there_is_left_to_the_driver() -> None:
    """Only what the known participants prepared is committed; the rest is counted."""
    world = World()
    die_decided(world)
    assert world.finish(targets=1) == [Finished(0, transactions=2, rows=2, left=2)]
    world.drive("next")
    world.check_exact()


def test_nothing_decided_nothing_done() -> None:
    """An aborted or an unknown batch is left as it is."""
    world = World()
    with pytest.raises(Crash):
        world.drive("dead", plan=FaultPlan(Fault.CRASH_AFTER, 6))
    assert world.decided() == set()
    assert world.finish() == []
    assert world.finish(batch_id=7) == []
