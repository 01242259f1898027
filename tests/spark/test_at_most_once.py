"""at_most_once in memory: a record stands before the first row is written."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from exactum import events
from exactum.errors import CheckpointRefused
from exactum.protocol.at_most_once import AtMostOnce
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    Epoch,
    Incarnation,
    PreparedTransaction,
    SourceOffsets,
)
from exactum.protocol.sink import Guarantee, QueryRun, WriteOrder
from exactum.testing.memory import MemoryDecisionLog, MemoryStorage

OFFSETS = SourceOffsets(end=('{"t":{"0":1}}',))


class Writes:
    """Counts write jobs; ``crash`` ends the process in the middle of the next one."""

    def __init__(self) -> None:
        self.orders: list[WriteOrder] = []
        self.crash = False

    def __call__(self, order: WriteOrder) -> Sequence[PreparedTransaction]:
        self.orders.append(order)
        if self.crash:
            raise KeyboardInterrupt
        return (PreparedTransaction("p", "x", 5),)


def incarnation(
    storage: MemoryStorage, name: str, seen: list[events.Event] | None = None
) -> AtMostOnce:
    run = QueryRun("q", Incarnation(name), Guarantee.AT_MOST_ONCE)
    return AtMostOnce(
        run, MemoryDecisionLog(storage, "q"), on_event=(seen if seen is not None else []).append
    )


def test_a_batch_is_written_once_and_recorded_first() -> None:
    """The record stands when the write begins, and names no transactions."""
    storage, writes = MemoryStorage(), Writes()
    protocol = incarnation(storage, "a")

    def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
        (record,) = MemoryDecisionLog(storage, "q").read(0)
        assert (record.decision, record.prepared, record.offsets) == (Decision.COMMIT, (), OFFSETS)
        return writes(order)

    assert protocol.run(0, OFFSETS, write).rows == 5
    assert not protocol.run(0, OFFSETS, write).written
    assert [o.sequence for o in writes.orders] == [1]


def test_a_crash_in_the_write_is_never_repaired() -> None:
    """The next incarnation skips the batch, says so, and goes on with the next."""
    storage, writes = MemoryStorage(), Writes()
    writes.crash = True
    with pytest.raises(KeyboardInterrupt):
        incarnation(storage, "a").run(0, OFFSETS, writes)
    writes.crash = False
    seen: list[events.Event] = []
    second = incarnation(storage, "b", seen)
    assert not second.run(0, OFFSETS, writes).written
    assert second.run(1, OFFSETS, writes).written
    assert [type(e) for e in seen] == [events.EpochAbandoned, events.EpochCompleted]
    assert len(writes.orders) == 2


def test_of_two_incarnations_one_writes() -> None:
    """Both read no record; the log lets one of them through."""
    storage, writes = MemoryStorage(), Writes()
    slow, fast = incarnation(storage, "slow"), incarnation(storage, "fast")

    class Overtaken(MemoryDecisionLog):
        def decide(self, record: DecisionRecord) -> DecisionRecord:
            fast.run(0, OFFSETS, writes)
            return super().decide(record)

    slow._log = Overtaken(storage, "q")
    assert not slow.run(0, OFFSETS, writes).written
    assert [o.run.incarnation for o in writes.orders] == ["fast"]


def test_other_offsets_are_refused() -> None:
    """A batch on record with other source offsets is another batch."""
    storage, writes = MemoryStorage(), Writes()
    incarnation(storage, "a").run(0, OFFSETS, writes)
    with pytest.raises(CheckpointRefused):
        incarnation(storage, "b").run(0, SourceOffsets(end=('{"t":{"0":2}}',)), writes)


def test_after_exactly_once() -> None:
    """An undecided batch of an exactly-once run is free; a decided one with transactions must be
    finished by it.
    """
    storage, writes = MemoryStorage(), Writes()
    log = MemoryDecisionLog(storage, "q")
    log.decide(DecisionRecord(Epoch("q", 0), 0, Decision.ABORT, Incarnation("x")))
    assert incarnation(storage, "a").run(0, OFFSETS, writes).written
    prepared = (PreparedTransaction("p", "t", 1),)
    log.decide(DecisionRecord(Epoch("q", 1), 0, Decision.COMMIT, Incarnation("x"), prepared))
    with pytest.raises(CheckpointRefused, match="once more with exactly_once"):
        incarnation(storage, "b").run(1, OFFSETS, writes)
