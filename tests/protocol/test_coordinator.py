"""The coordinator over in-memory ports, run by run. (A fault at every port call: test_guarantees.)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from exactum import events
from exactum.errors import (
    CheckpointRefused,
    Fenced,
    HeuristicOutcome,
    InvariantBroken,
    OutcomeUnknown,
    Unavailable,
)
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Completed,
    Decision,
    DecisionRecord,
    Epoch,
    Incarnation,
    PreparedTransaction,
    SourceOffsets,
)
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Guarantee, QueryRun, Write
from exactum.testing import Crash, Fault, FaultPlan, MemoryDecisionLog, MemoryStorage, faulty
from model.memory import MemoryParticipant, MemoryTarget, MemoryWrite
from tests.kit.errors import raised

QUERY = "query"


class World:
    """Targets and storage, and the drivers that come and go."""

    def __init__(self, targets: int = 1, tasks: int = 1, retried: int = 0) -> None:
        self.targets = [MemoryTarget(f"t{i}") for i in range(targets)]
        self.storage = MemoryStorage()
        self.tasks, self.retried = tasks, retried
        self.events: list[events.Event] = []

    def coordinator(
        self, who: str, plan: FaultPlan | None = None, log: DecisionLog | None = None
    ) -> Coordinator:
        run = QueryRun(QUERY, Incarnation(who), Guarantee.EXACTLY_ONCE)
        ports: list[Participant] = [MemoryParticipant(t, run) for t in self.targets]
        log = log or MemoryDecisionLog(self.storage, QUERY)
        if plan:
            ports, log = [faulty(p, plan) for p in ports], faulty(log, plan)
        return Coordinator(run, ports, log, on_event=self.events.append)

    def write(self) -> Write:
        return MemoryWrite(self.targets, tasks=self.tasks, retried=self.retried)

    def check(self, batches: int) -> None:
        expected = Counter(MemoryWrite.row(b, t) for b in range(batches) for t in range(self.tasks))
        for target in self.targets:
            assert Counter(target.visible) == expected
            assert target.unsettled() == []
            assert target.violations == []

    def kinds(self) -> list[str]:
        return [type(e).__name__ for e in self.events]


def end(batch_id: int) -> SourceOffsets:
    return SourceOffsets((), (str(batch_id),))


class RecordsThenRaises(MemoryDecisionLog):
    """When its first COMMIT is recorded and nothing else is done yet, the process dies, or the
    reply is lost.
    """

    def __init__(self, storage: MemoryStorage, raises: BaseException) -> None:
        super().__init__(storage, QUERY)
        self._raises = raises

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        stands = super().decide(record)
        if record.decision is Decision.COMMIT:
            raise self._raises
        return stands


def die_decided(world: World, who: str) -> None:
    coordinator = world.coordinator(who, log=RecordsThenRaises(world.storage, Crash("decided")))
    with pytest.raises(Crash):
        coordinator.run(0, end(0), world.write())


def test_epochs_become_visible_one_after_another() -> None:
    """A fresh query fences once, then decides and completes each batch."""
    world = World(targets=2, tasks=3, retried=2)
    coordinator = world.coordinator("a")
    for batch_id in range(2):
        assert coordinator.run(batch_id, end(batch_id), world.write()) == Completed(True, 6)
    world.check(2)
    assert world.kinds() == [
        "OlderRunsFenced",
        *(2 * ["EpochDecided", "LeftoversSwept", "LeftoversSwept", "EpochCompleted"]),
    ]
    completed = world.events[-1]
    assert isinstance(completed, events.EpochCompleted)
    assert set(completed.phase_ms) == {"write", "verify", "decide", "commit", "sweep"}


def test_an_older_incarnation_is_fenced_and_cleans_up() -> None:
    """A record of another in its slot: it aborts what it prepared, says who, and stays stopped."""
    world = World()
    old = world.coordinator("old")
    old.run(0, end(0), world.write())
    world.coordinator("new").run(1, end(1), world.write())
    for _ in range(2):
        with raised(Fenced, "incarnation new"):
            old.run(1, end(1), world.write())
    world.check(2)
    assert world.kinds().count("IncarnationFenced") == 1


def test_a_swept_incarnation_learns_that_it_is_fenced() -> None:
    """Its successor aborted its transactions: that is Fenced, not EpochAborted, which says
    "start again".
    """
    world = World()
    write = world.write()

    def overtaken(order: object) -> Sequence[PreparedTransaction]:
        prepared = write(order)  # type: ignore[arg-type]
        world.coordinator("new").run(0, end(0), world.write())
        return prepared

    with raised(Fenced, "incarnation new"):
        world.coordinator("old").run(0, end(0), overtaken)
    world.check(1)


def test_gone_rows_are_reported_and_no_copy_is_left() -> None:
    """Rows that cannot be salvaged halt the query; copies made for other sinks are aborted."""
    world = World(targets=2)
    world.targets[1].keeps_aborted_rows = False
    die_decided(world, "a")
    for target in world.targets:
        target.expire()
    for who in ("b", "c"):
        with raised(HeuristicOutcome, "SINK_LOST", "1 rows"):
            world.coordinator(who).run(0, end(0), world.write())
        assert all(t.unsettled() == [] for t in world.targets)
    assert all(t.visible == [] for t in world.targets)


def test_a_salvage_of_fewer_rows_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink whose copy lacks rows, without a word: the epoch stays decided, and nobody takes it for
    whole.
    """
    world = World()
    die_decided(world, "a")
    world.targets[0].expire()
    salvage = MemoryParticipant.salvage

    def short(self: MemoryParticipant, *given: Any) -> Sequence[PreparedTransaction]:
        return [replace(copy, rows=copy.rows - 1) for copy in salvage(self, *given)]

    with monkeypatch.context() as patched:
        patched.setattr(MemoryParticipant, "salvage", short)
        with raised(InvariantBroken, "0 of 1 rows"):
            world.coordinator("b").run(0, end(0), world.write())
    assert world.targets[0].unsettled() == []
    world.coordinator("c").run(0, end(0), world.write())
    world.check(1)


def test_a_salvage_that_is_fenced_leaves_no_copy() -> None:
    """A zombie whose batch is pruned while it salvages aborts its copies."""
    world = World()
    record_of = {}

    class Log(MemoryDecisionLog):
        def decide(self, record: DecisionRecord) -> DecisionRecord:
            if record.supersedes is not None:
                raise Fenced("pruned")
            stands = super().decide(record)
            if record.decision is Decision.COMMIT:
                record_of[0] = record
                world.targets[0].expire()
            return stands

    with raised(Fenced, "pruned"):
        world.coordinator("a", log=Log(world.storage, QUERY)).run(0, end(0), world.write())
    assert record_of
    assert world.targets[0].unsettled() == []


def test_a_late_decision_of_the_same_incarnation_is_not_undone() -> None:
    """A decision whose outcome was unknown may take effect later: the same incarnation may not
    go on.
    """
    world = World()
    late: list[DecisionRecord] = []

    class Slow(MemoryDecisionLog):
        def decide(self, record: DecisionRecord) -> DecisionRecord:
            if record.decision is Decision.COMMIT and not late:
                late.append(record)
                raise OutcomeUnknown("no reply")
            return super().decide(record)

    log = Slow(world.storage, QUERY)
    coordinator = world.coordinator("a", log=log)
    with pytest.raises(OutcomeUnknown):
        coordinator.run(0, end(0), world.write())
    MemoryDecisionLog.decide(log, late[0])
    with pytest.raises(OutcomeUnknown):
        coordinator.run(0, end(0), world.write())
    assert world.coordinator("b").run(0, end(0), world.write()) == Completed(False, 1)
    world.check(1)


Answer = Callable[[Sequence[PreparedTransaction]], Sequence[PreparedTransaction]]


class _Answers(MemoryParticipant):
    """Answers for others than it was asked about, in ``verify`` or in ``commit``."""

    lies_in = ""
    answer: Answer

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        found = super().verify(prepared)
        return self.answer(found) if self.lies_in == "verify" else found

    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        found = super().commit(permit, prepared)
        return CommitReport(tuple(self.answer(prepared))) if self.lies_in == "commit" else found


ANSWERS: dict[str, Answer] = {
    "nothing": lambda asked: (),
    "each twice": lambda asked: [*asked, *asked],
    "one twice, for the other": lambda asked: [asked[0], asked[0]],
}


@pytest.mark.parametrize("verb", ["verify", "commit"])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_participant_that_answers_for_others_is_not_believed(answer: Answer, verb: str) -> None:
    """A transaction missing from an answer stops the query instead of being lost."""
    world = World(tasks=2)
    run = QueryRun(QUERY, Incarnation("a"), Guarantee.EXACTLY_ONCE)
    lying = _Answers(world.targets[0], run)
    lying.lies_in, lying.answer = verb, answer  # type: ignore[method-assign]
    with raised(InvariantBroken, "t0"):
        Coordinator(run, [lying], MemoryDecisionLog(world.storage, QUERY)).run(
            0, end(0), world.write()
        )


def test_other_offsets_for_a_decided_batch_are_refused() -> None:
    """A restored checkpoint that reads other offsets is found before anything is written."""
    world = World()
    world.coordinator("a").run(0, end(0), world.write())
    other = world.coordinator("b")
    for _ in range(2):  # again: the same code
        with raised(CheckpointRefused, "OFFSETS_DIFFER"):
            other.run(0, end(7), world.write())
    world.check(1)


def test_a_record_for_a_removed_sink_stops_the_start() -> None:
    """Rows decided for a sink that the query no longer has are not forgotten."""
    world = World()
    gone = PreparedTransaction("gone", "x", 1)
    record = DecisionRecord(Epoch(QUERY, 0), 0, Decision.COMMIT, Incarnation("a"), (gone,))
    MemoryDecisionLog(world.storage, QUERY).decide(record)
    with raised(CheckpointRefused, "SINKS_MISSING", "gone"):
        world.coordinator("b").run(0, end(0), world.write())


def test_a_late_task_is_swept_between_two_epochs() -> None:
    """A speculative task that opens its transaction after the epoch does not hold readers of a
    quiet stream back.
    """
    world = World()
    coordinator = world.coordinator("a")
    assert coordinator.sweep_own(0) == 0
    coordinator.run(0, end(0), world.write())
    world.targets[0].begin(Incarnation("a"), ["late"])
    foreign = world.targets[0].begin(Incarnation("b"), ["not ours"])
    assert coordinator.sweep_own(0) == 1
    assert [t.identity for t in world.targets[0].unsettled()] == [foreign]


def test_a_late_task_of_an_abandoned_epoch_is_swept_and_nothing_while_it_runs() -> None:
    """While an epoch runs, what is open is its own; once it is abandoned, what still comes is
    nobody's.
    """
    world = World()
    coordinator = world.coordinator("a")
    swept: list[int] = []

    def failing(order: object) -> Sequence[PreparedTransaction]:
        world.targets[0].begin(Incarnation("a"), ["open"])
        swept.append(coordinator.sweep_own(0))
        raise Unavailable("a task failed")

    with pytest.raises(Unavailable):
        coordinator.run(0, end(0), failing)
    assert coordinator.abandoned == 0
    assert world.targets[0].unsettled() == []
    world.targets[0].begin(Incarnation("a"), ["late"])
    foreign = world.targets[0].begin(Incarnation("b"), ["not ours"])
    assert [*swept, coordinator.sweep_own(0), coordinator.sweep_own(0)] == [0, 1, 0]
    assert [t.identity for t in world.targets[0].unsettled()] == [foreign]


def test_nothing_is_swept_after_a_failure_that_may_have_left_a_decision() -> None:
    """The record of which nobody knows whether it was created names what is open."""
    world = World()
    coordinator = world.coordinator(
        "a", log=RecordsThenRaises(world.storage, OutcomeUnknown("no reply"))
    )
    with pytest.raises(OutcomeUnknown):
        coordinator.run(0, end(0), world.write())
    assert coordinator.abandoned is None
    assert coordinator.sweep_own(0) == 0
    world.coordinator("b").run(0, end(0), world.write())
    world.check(1)


def test_a_sink_that_cannot_be_reached_is_left_to_the_next_start() -> None:
    """A failure in the clean-up does not hide why the attempt failed."""
    world = World()
    coordinator = world.coordinator("a", FaultPlan(Fault.UNAVAILABLE_BEFORE, 9))

    def failing(order: object) -> Sequence[PreparedTransaction]:
        world.write()(order)  # type: ignore[arg-type]
        raise Unavailable("a task failed")

    with raised(Unavailable, "a task failed"):
        coordinator.run(0, end(0), failing)
    world.coordinator("b").run(0, end(0), world.write())
    world.check(1)
