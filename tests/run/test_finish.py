"""Finishing what is decided without becoming a driver, in memory: after every crash, and beside
a driver.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exactum.checkpoint.staging_place import Places
from exactum.custom.write_ahead import WriteAheadSink
from exactum.errors import Disposition, ExactumError, SettingRefused, Unavailable
from exactum.ops.run.commit_worker import finish
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.finish import Finished, commit_decided, decided_from, finished
from exactum.protocol.model import Decision, Incarnation, SourceOffsets
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Guarantee, OpenSink, QueryRun
from exactum.spark.query import RunningQuery
from exactum.spark.supervised.handover import Handover, unpickled
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
from tests.kit.waiting import WAIT_MAX_S

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


class MemorySink:
    """One of the world's targets as a sink. ``hangs``: whoever opens it waits; ``fails``: gets
    this error.
    """

    rows = None

    def __init__(
        self, target: MemoryTarget, hangs: threading.Event | None = None, fails: str = ""
    ) -> None:
        self.name = target.name
        self._target = target
        self._hangs = hangs
        self._fails = fails

    def open(self, run: QueryRun, participant: str, columns: Any = ()) -> OpenSink:
        assert participant == self.name
        if self._hangs is not None:
            self._hangs.wait(60)
        if self._fails:
            raise Unavailable(self._fails)
        return OpenSink(MemoryParticipant(self._target, run), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("trouble", ["hangs", "fails"])
def test_no_sink_waits_for_another(trouble: str) -> None:
    """What one target cannot take, the other one shows; the one that hangs or fails is named
    with the reason.
    """
    world = World()
    die_decided(world)
    first, second = world.targets
    hangs = threading.Event()
    bad = MemorySink(first, hangs) if trouble == "hangs" else MemorySink(first, fails="it is down")
    handover = Handover(
        RUNNING, (bad, MemorySink(second)), (first.name, second.name), Places(world.log()), ((), ())
    )  # type: ignore[arg-type]
    outcome = finish(handover, 0, timeout_s=3.0)
    hangs.set()
    assert outcome.batches == [Finished(0, transactions=2, rows=2, left=2)]
    assert outcome.troubles == {
        first.name: "no answer within 3 s" if trouble == "hangs" else "it is down"
    }
    assert len(second.visible) == 2
    world.drive("next")
    world.check_exact()


def test_what_is_to_be_sent_is_left_to_the_next_driver(tmp_path: Path) -> None:
    """To send it is to take the sending over, perhaps from a standby that has begun to."""
    world = World()
    die_decided(world)
    first, second = world.targets
    sent: list[object] = []
    sends = WriteAheadSink(send=sent.append, name=first.name)
    handover = Handover(
        RUNNING,
        (sends, MemorySink(second)),
        (first.name, second.name),
        Places(world.log()),
        ((), ()),
    )  # type: ignore[arg-type]
    outcome = finish(handover, 0)
    assert outcome.batches == [Finished(0, transactions=2, rows=2, left=2)]
    assert list(outcome.troubles) == [first.name] and not sent and not any(tmp_path.iterdir())


# ---- the handover --------------------------------------------------------------------------------

RUNNING = RunningQuery(
    query_id=QUERY,
    run_id="run",
    name=None,
    checkpoint="file:/checkpoint",
    execution_class="MicroBatchExecution",
    trigger="",
    master="local[1]",
    retained=100,
    session_checkpoint=None,
    execution=threading.Lock(),  # as little to be pickled as the JVM's object
)


class Sink:
    """A sink of the user's own."""

    def __init__(self, rows: Any = None, **more: Any) -> None:
        self._rows = rows
        self.more = more

    name = "own"

    @property
    def rows(self) -> Any:
        return self._rows


def test_a_handover_arrives_without_what_belongs_to_the_session() -> None:
    """Sinks arrive as they were configured, but for ``rows=``, which may hold on to a session."""
    lock = threading.Lock()
    sinks = (Sink(rows=lambda frame: (lock, frame), topic="t"), Sink(password="s3cret"))
    handover = Handover(RUNNING, sinks, ("own", "own#2"), Places("postgresql://host/db"), ((), ()))  # type: ignore[arg-type]
    arrived = unpickled(handover.pickled(), ())
    assert [sink.more for sink in arrived.sinks] == [{"topic": "t"}, {"password": "s3cret"}]  # type: ignore[attr-defined]
    assert [sink.rows for sink in arrived.sinks] == [None, None]
    assert (arrived.names, arrived.places.decision_log) == (
        ("own", "own#2"),
        "postgresql://host/db",
    )
    assert (arrived.running.query_id, arrived.running.execution) == (QUERY, None)


def test_a_class_of_the_script_goes_along() -> None:
    """A sink class that nobody else can import, as those of a script's own file, arrives by
    value.
    """

    class Local:
        name, rows = "the script's own", None

    Local.__module__ = "__main__"
    handover = Handover(RUNNING, (Local(),), ("local",), Places(), ((),))  # type: ignore[arg-type]
    program = (
        "import sys; from exactum.spark.supervised.handover import unpickled; "
        "print(unpickled(sys.stdin.buffer.read(), sys.argv[1:]).sinks[0].name, end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *sys.path],
        input=handover.pickled(),
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=WAIT_MAX_S,
    )
    assert done.stdout.decode() == "the script's own"


def test_what_does_not_pickle_is_said() -> None:
    """A sink that holds a connection cannot be handed over: one error with its reason, no
    damage.
    """
    handover = Handover(RUNNING, (Sink(connection=threading.Lock()),), ("own",), Places(), ((),))  # type: ignore[arg-type]
    with raised(SettingRefused, "SINK_NOT_PICKLABLE") as refused:
        handover.pickled()
    assert refused.value.disposition is Disposition.HALT
