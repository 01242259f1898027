"""Finishing what is decided without becoming a driver, in memory: after every crash, and beside
a driver.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from exactum import FileSink
from exactum.checkpoint.query_place import QueryPlace
from exactum.custom.write_ahead import WriteAheadSink
from exactum.errors import ExactumError, SettingRefused, Unavailable
from exactum.ops.run.commit_worker import finish
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.finish import Finished, commit_decided, decided_from, finished
from exactum.protocol.model import Decision, Incarnation, SourceOffsets
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.testing import (
    Crash,
    Fault,
    FaultPlan,
    MemoryDecisionLog,
    MemoryParticipant,
    MemoryStorage,
    MemoryTarget,
    MemoryWrite,
    faulty,
    sweep,
)
from tests.kit.errors import raised
from tests.kit.verify.recorded_query import RecordedQuery

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


# ---- the finisher --------------------------------------------------------------------------------


class Troubled:
    """A sink whose target is asked by this one's own inspector, which hangs or fails."""

    def __init__(self, sink: Any, trouble: Callable[[], None]) -> None:
        self._sink, self._trouble = sink, trouble
        self.name, self.check_columns, self.open = sink.name, sink.check_columns, sink.open

    def inspector(self, *arguments: Any) -> Any:
        self._trouble()
        return self._sink.inspector(*arguments)


def decided(folder: Path) -> RecordedQuery:
    """Two folders, and a batch whose driver died right after its decision."""
    tasks = lambda batch_id: [[pa.record_batch({"n": pa.array([batch_id], pa.int64())})]]  # noqa: E731
    makes = {
        name: lambda name=name: FileSink(str(folder / name), format="json", name=name)
        for name in ("a", "b")
    }
    columns = (("n", "bigint"),)
    query = RecordedQuery(folder / "c", {n: (make, columns, tasks) for n, make in makes.items()})
    query.run([0], dies_after_decision=True)
    return query


def visible(folder: Path, name: str) -> list[str]:
    return [path.read_text() for path in (folder / name).glob("part-*")]


def test_what_is_decided_is_finished_by_sinks_that_are_given(tmp_path: Path) -> None:
    """Again and again, and nothing is there twice; the next driver ends exact."""
    query = decided(tmp_path)
    place = QueryPlace.of(query.folder)
    for _ in range(2):
        report = finish(place, query.sinks(), 0)
        assert (report.batches, report.troubles) == ([Finished(0, 2, 2, left=0)], {})
    query.run([0, 1])
    for name in ("a", "b"):
        assert sorted(visible(tmp_path, name)) == ['{"n":0}\n', '{"n":1}\n']


@pytest.mark.parametrize("trouble", ["hangs", "fails"])
def test_no_sink_waits_for_another(tmp_path: Path, trouble: str) -> None:
    """What one target cannot take, the other one shows; the one that hangs or fails is named
    with the reason.
    """
    query = decided(tmp_path)
    hangs = threading.Event()

    def fails() -> None:
        raise Unavailable("it is down")

    sinks = query.sinks()
    bad = Troubled(sinks["a"], (lambda: hangs.wait(60)) if trouble == "hangs" else fails)  # type: ignore[arg-type,return-value]
    report = finish(QueryPlace.of(query.folder), {**sinks, "a": bad}, 0, timeout_s=3.0)
    hangs.set()
    assert report.batches == [Finished(0, 1, 1, left=1)]
    assert report.troubles == {"a": "no answer within 3 s" if trouble == "hangs" else "it is down"}
    assert visible(tmp_path, "b") == ['{"n":0}\n']
    query.run([0, 1])
    assert sorted(visible(tmp_path, "a")) == ['{"n":0}\n', '{"n":1}\n']


def test_what_is_to_be_sent_is_left_to_the_next_driver(tmp_path: Path) -> None:
    """To send it is to take the sending over, perhaps from a standby that has begun to."""
    query = decided(tmp_path)
    sent: list[object] = []
    ahead = WriteAheadSink(send=lambda batch, key: sent.append(key), name="a")
    report = finish(QueryPlace.of(query.folder), {**query.sinks(), "a": ahead}, 0)
    assert report.batches == [Finished(0, 1, 1, left=1)]
    assert list(report.troubles) == ["a"] and not sent


def test_sinks_of_another_query_finish_nothing(tmp_path: Path) -> None:
    """A script may have several queries, and sinks of them may have one name."""
    query = decided(tmp_path)
    for sinks in ({}, {"a": query.sinks()["a"]}, {**query.sinks(), "c": query.sinks()["a"]}):
        with raised(SettingRefused, "SINK_UNKNOWN", "'a', 'b'"):
            finish(QueryPlace.of(query.folder), sinks, 0)
    assert visible(tmp_path, "a") == visible(tmp_path, "b") == []
