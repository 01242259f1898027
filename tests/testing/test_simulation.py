"""The coordinator under every interleaving, and proof that the simulation can fail."""

from __future__ import annotations

import random
import re
import time
from dataclasses import replace

import pytest

from exactum.protocol import resolve
from exactum.protocol.coordinator import Completed, Coordinator
from exactum.protocol.model import Decision, DecisionRecord, Epoch
from exactum.testing import (
    MemoryDecisionLog,
    Schedule,
    Setup,
    System,
    Violation,
    explore,
    outcomes,
    replay,
    wander,
)
from exactum.testing.simulation import QUERY_ID

SETUPS = [
    Setup(),
    Setup(tasks=2, retried=2),
    Setup(batches=3, participants=2, tasks=2, retried=1),
    Setup(batches=1),
    Setup(batches=3),
]


@pytest.mark.parametrize(
    ("pattern", "setup", "stride"),
    [
        ("a? b? a* b*", Setup(), 1),
        ("a? b? b! a*", Setup(batches=1, retried=1), 1),
        ("a? b? a? b* a*", Setup(batches=1), 1),
        ("a? a! x b? b! t c*", Setup(batches=1), 1),
        ("a? x b? x a* b*", Setup(batches=1), 1),
        ("a? b? c* a* b*", Setup(batches=2), 2),
        ("a? t b? a! x b*", Setup(batches=2, participants=2), 2),
        ("a? b? a? x b? a* b*", Setup(batches=1), 3),
    ],
)
def test_every_schedule_of_a_pattern_keeps_the_promise(pattern: str, setup: Setup, stride: int) -> None:
    """Exhaustive up to the pattern's switches: each batch once everywhere, nothing open, newest wins."""
    began_s = time.perf_counter()
    runs = sum(1 for _ in explore(setup, pattern, stride=stride))
    print(f"{pattern} on {setup}: {runs} schedules, {runs / (time.perf_counter() - began_s):.0f}/s")
    assert runs > 50


def test_random_schedules_keep_the_promise() -> None:
    """Two and three incarnations, deaths, timeouts and late tasks anywhere; the seed is printed."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    began_s = time.perf_counter()
    runs = sum(1 for _ in wander(seed, 1_500, SETUPS))
    print(f"{runs} schedules, {runs / (time.perf_counter() - began_s):.0f}/s")


def test_a_schedule_replays_the_same_run() -> None:
    """The text of a schedule is all that is needed to see a run again."""
    text = "b2p2t2r1k: a14 b9 x a3 t b! c*"
    assert str(Schedule.parse(text)) == text
    assert replay(text) == replay(text)
    with pytest.raises(ValueError, match="Not a schedule"):
        Schedule.parse("b2: what")


# ---- broken on purpose ---------------------------------------------------------------------------


class NoDoor(Coordinator):
    """Starts without a record of its own."""

    def _start(self, batch_id: int) -> resolve.Door:
        while commit := resolve.standing_commit(self._log.read(batch_id)):
            self._redeliver(commit)
            batch_id += 1
        return resolve.Door(batch_id, len(self._log.read(batch_id)) - 1)


class ListsAfterRecord(Coordinator):
    """Sweeps what is open at the time of the sweep."""

    def _attempt(self, batch_id, attempt, offsets, write):  # type: ignore[no-untyped-def]
        epoch = Epoch(self._run.query_id, batch_id)
        prepared = self._prepare(epoch, attempt, write)
        _, record = self._decide(epoch, attempt, offsets, prepared)
        final = self._commit(record)
        self._abort(batch_id, resolve.leftovers(self._list_open(), (record, final)))
        return Completed(True, 0)


class ListsAfterDoor(Coordinator):
    """Sweeps at its start what was opened after its door was closed."""

    def _start(self, batch_id: int) -> resolve.Door:
        door = super()._start(batch_id)
        self._abort(batch_id, self._list_open())
        return door


class CommitsFirst(Coordinator):
    """Makes visible, then records."""

    def _decide(self, epoch, attempt, offsets, prepared):  # type: ignore[no-untyped-def]
        verified = self._verify(prepared)
        record = DecisionRecord(epoch, attempt, Decision.COMMIT, self._run.incarnation, verified, offsets)
        sightings = self._list_open()
        self._commit(record)
        if self._log.decide(record) != record:
            raise self._fenced(record)
        return sightings, record


class SalvagesWithoutRecord(Coordinator):
    """Commits the copies of expired rows without recording them first."""

    def _salvage(self, permit, expired):  # type: ignore[no-untyped-def]
        fresh = [p for who, gone in expired for p in who.salvage(permit, gone)]
        return replace(permit.record, prepared=tuple(fresh))


class IgnoresOthers(Coordinator):
    """Takes an unknown or foreign answer of the log for its own."""

    def _decide(self, epoch, attempt, offsets, prepared):  # type: ignore[no-untyped-def]
        verified = self._verify(prepared)
        record = DecisionRecord(epoch, attempt, Decision.COMMIT, self._run.incarnation, verified, offsets)
        sightings = self._list_open()
        self._log.decide(record)
        return sightings, record


class NoFloor(MemoryDecisionLog):
    """Forgets that it was pruned."""

    def prune(self, below_batch_id: int) -> int:
        removed = super().prune(below_batch_id)
        self._storage.floor = 0
        return removed


BROKEN: dict[str, tuple[System, str, Setup, str]] = {
    "no door": (System(coordinator=NoDoor), "a? b? a* b*", Setup(), "behind the door of nobody"),
    "list after the record": (
        System(coordinator=ListsAfterRecord),
        "a? b? a* b*",
        Setup(),
        "b committed target0/b/1, which a aborted",
    ),
    "list after the door": (
        System(coordinator=ListsAfterDoor),
        "a? b? a? b*",
        Setup(batches=1),
        "b committed target0/b/0, which a aborted",
    ),
    "commit before the record": (System(coordinator=CommitsFirst), "a? a! b*", Setup(), "too many"),
    "salvage without a record": (
        System(coordinator=SalvagesWithoutRecord),
        "a? x a? a! b*",
        Setup(),
        "too many",
    ),
    "any record will do": (System(coordinator=IgnoresOthers), "a? b? a* b*", Setup(), "which b aborted"),
    "prune without a floor": (
        System(log=lambda storage: NoFloor(storage, QUERY_ID)),
        "a? b* a*",
        Setup(batches=3),
        "too many",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_found(name: str) -> None:
    """The simulation finds what each broken protocol does, and its schedule replays to the same failure."""
    system, pattern, setup, damage = BROKEN[name]
    runs = 0
    for outcome in outcomes(setup, pattern, system):
        runs += 1
        if damage in str(outcome.violations):
            break
    else:
        pytest.fail(f"{name} went unnoticed in {runs} schedules of {pattern}")
    print(f"{name}: {outcome.schedule}, found after {runs} schedules: {outcome.violations}")
    with pytest.raises(Violation, match=re.escape(str(outcome.schedule))):
        replay(str(outcome.schedule), system)
    replay(str(outcome.schedule))
