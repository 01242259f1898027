"""A permit to commit comes from a decision log that has just said that the record stands."""

from __future__ import annotations

import pytest

from exactum.errors import InvariantBroken
from exactum.protocol.decision_log import PermitLog
from exactum.protocol.model import CommitPermit, Decision, DecisionRecord, Epoch, Incarnation
from exactum.testing.memory import MemoryDecisionLog, MemoryStorage


def record(batch_id: int, attempt: int = 0, decision: Decision = Decision.COMMIT) -> DecisionRecord:
    return DecisionRecord(Epoch("q", batch_id), attempt, decision, Incarnation("a"))


def standing() -> PermitLog:
    return PermitLog(MemoryDecisionLog(MemoryStorage(), "q"))


def test_what_stands_is_permitted() -> None:
    """After ``decide``, and after ``read``."""
    records = standing()
    mine = records.decide(record(0))
    assert records.permit(mine).record == mine
    records.read(1)
    (found,) = records.read(0)
    assert records.permit(found).record == mine


def test_nothing_else_is() -> None:
    """A proposed record, one whose slot another one holds, an ABORT, one that was not looked at
    last, and a permit that is made by hand.
    """
    records = standing()
    abort = records.decide(record(0, 0, Decision.ABORT))
    with pytest.raises(InvariantBroken):
        records.permit(abort)
    assert records.decide(record(0)) == abort
    with pytest.raises(InvariantBroken):
        records.permit(record(0))
    first = records.decide(record(1))
    records.decide(record(2))
    with pytest.raises(InvariantBroken):
        records.permit(first)
    with pytest.raises(InvariantBroken):
        CommitPermit(first)
