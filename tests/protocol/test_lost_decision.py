"""A start that finds its last decision gone: refused where a target still knows of it, and never
without a reason.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from exactum.errors import CheckpointRefused, Unavailable
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import Decision, DecisionRecord, Incarnation, SourceOffsets
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.testing import (
    MemoryDecisionLog,
    MemoryParticipant,
    MemoryStorage,
    MemoryTarget,
    MemoryWrite,
    replay,
)

QUERY = "query"


class World:
    """A target and a decision log, and drivers that come and go."""

    def __init__(self) -> None:
        self.target = MemoryTarget("t")
        self.storage = MemoryStorage()

    def start(self, who: str) -> Coordinator:
        run = QueryRun(QUERY, Incarnation(who), Guarantee.EXACTLY_ONCE)
        return Coordinator(
            run, [MemoryParticipant(self.target, run)], MemoryDecisionLog(self.storage, QUERY)
        )

    def run(self, driver: Coordinator, batches: Sequence[int]) -> None:
        for batch_id in batches:
            driver.run(batch_id, SourceOffsets(), MemoryWrite([self.target]))

    def lose(self, *batches: int) -> None:
        """The COMMITs of these batches, from the log."""
        doomed = [
            s
            for s, r in self.storage.records.items()
            if s[1] in batches and r.decision is Decision.COMMIT
        ]
        assert len(doomed) == len(batches)
        for slot in doomed:
            del self.storage.records[slot]

    @property
    def records(self) -> list[DecisionRecord]:
        return list(self.storage.records.values())


@pytest.mark.parametrize("last", [0, 1, 2, 3])
def test_the_last_decision_is_gone(last: int) -> None:
    """Spark asks for the batch again: its rows stand already."""
    world = World()
    world.run(world.start("a"), range(last + 1))
    world.lose(last)
    before = world.records
    with pytest.raises(
        CheckpointRefused,
        match=f"has committed a transaction for epoch {last} of query query or a later",
    ):
        world.run(world.start("b"), [last])
    assert world.target.visible == [MemoryWrite.row(b, 0) for b in range(last + 1)]
    assert world.records == before  # no fence either: the next start finds the same


def test_a_checkpoint_that_is_older_than_the_target() -> None:
    """Batches 2 and 3 are gone from the log, as if it and Spark's checkpoint were of the day
    before.
    """
    world = World()
    world.run(world.start("a"), range(4))
    world.lose(2, 3)
    with pytest.raises(CheckpointRefused, match="2 transactions for epoch 2 of query query"):
        world.run(world.start("b"), [2])


def test_decided_and_not_committed_is_gone() -> None:
    """Nothing of it is visible, so it is run again."""
    world = World()
    world.run(world.start("a"), [0])

    class Dies(MemoryParticipant):
        def commit(self, permit, prepared):  # type: ignore[no-untyped-def]
            raise Unavailable("the target is gone")

    run = QueryRun(QUERY, Incarnation("b"), Guarantee.EXACTLY_ONCE)
    dies = Coordinator(run, [Dies(world.target, run)], MemoryDecisionLog(world.storage, QUERY))
    with pytest.raises(Unavailable):
        world.run(dies, [1])
    world.lose(1)
    world.run(world.start("c"), [1, 2])
    assert world.target.visible == [MemoryWrite.row(b, 0) for b in range(3)]
    assert world.target.unsettled() == []


@pytest.mark.parametrize("written", [2, 3])
def test_the_record_of_an_epoch_that_spark_has_logged_is_gone(written: int) -> None:
    """What is committed may be of that epoch alone, or of the next one as well: nobody can tell,
    so it is refused.
    """
    world = World()
    world.run(world.start("a"), range(written + 1))
    world.lose(*range(2, written + 1))
    with pytest.raises(
        CheckpointRefused, match="has lost the decision of batch 2, and sink 't' has committed"
    ):
        world.run(world.start("b"), [3])
    assert world.target.visible == [MemoryWrite.row(b, 0) for b in range(written + 1)]


def test_batches_without_a_decision_are_no_loss() -> None:
    """A query that ran at least once for a while has none on record, and nothing is committed
    that nobody names.
    """
    world = World()
    world.run(world.start("a"), range(3))
    world.run(world.start("b"), [5, 6])
    assert world.target.visible == [MemoryWrite.row(b, 0) for b in (0, 1, 2, 5, 6)]


@pytest.mark.parametrize("pruned_below", [0, 6, 9, 10])
def test_old_records_are_pruned(pruned_below: int) -> None:
    """What was committed under them is no reason to stop."""
    world = World()
    world.run(world.start("a"), range(10))
    MemoryDecisionLog(world.storage, QUERY).prune(pruned_below)
    world.run(world.start("b"), [10, 11])
    assert len(world.target.visible) == 12


@pytest.mark.parametrize("later", range(8))
def test_what_a_start_has_salvaged_before_its_door_is_no_reason_to_stop(later: int) -> None:
    """A copy is of the incarnation that made it, in a batch before its fence: however many
    batches ago that was.
    """
    world = World()
    world.run(world.start("a"), range(3))

    class Expires(MemoryParticipant):
        def commit(self, permit, prepared):  # type: ignore[no-untyped-def]
            world.target.expire()
            raise Unavailable("the target is gone")

    run = QueryRun(QUERY, Incarnation("b"), Guarantee.EXACTLY_ONCE)
    dies = Coordinator(run, [Expires(world.target, run)], MemoryDecisionLog(world.storage, QUERY))
    with pytest.raises(Unavailable):
        world.run(dies, [3])
    world.run(world.start("c"), range(3, 4 + later))
    MemoryDecisionLog(world.storage, QUERY).prune(max(0, later - 1))
    world.run(world.start("d"), [4 + later])
    assert world.target.visible == [MemoryWrite.row(b, 0) for b in range(5 + later)]


def test_others_went_on_between_a_salvage_and_the_door_of_the_start_that_made_it() -> None:
    """``a`` salvages batch 0 at its start, ``b`` lives on, does batch 1, prunes batch 0; then
    ``a`` sets its fence.
    """
    replay("b3p1t2r0k: b1 b12 x b1 a9 b1 t t b20 a8")


def test_another_one_decides_meanwhile() -> None:
    """What an incarnation that lives commits while a start looks is on record by then."""
    world = World()
    world.run(world.start("a"), [0])
    alive = world.start("b")
    world.run(alive, [1])

    class Looks(MemoryParticipant):
        def list_committed(self, incarnations, recent):  # type: ignore[no-untyped-def]
            world.run(alive, [2, 3])
            return super().list_committed(incarnations, recent)

    run = QueryRun(QUERY, Incarnation("c"), Guarantee.EXACTLY_ONCE)
    starts = Coordinator(run, [Looks(world.target, run)], MemoryDecisionLog(world.storage, QUERY))
    assert not starts.run(2, SourceOffsets(), MemoryWrite([world.target])).written
