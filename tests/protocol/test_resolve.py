"""What no log can say that was kept as it is. (From sound records to what must be done: the faults at every
call of test_guarantees, and the schedules of tests/testing.)
"""

from __future__ import annotations

import pytest

from exactum.errors import CheckpointRefused, InvariantBroken
from exactum.protocol import resolve
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    Epoch,
    Incarnation,
    PreparedTransaction,
    SourceOffsets,
)
from exactum.protocol.resolve import Fence
from tests.kit.errors import raised

A, B = Incarnation("a"), Incarnation("b")


def abort(attempt: int, who: Incarnation = A) -> DecisionRecord:
    return DecisionRecord(Epoch("q", 5), attempt, Decision.ABORT, who)


def commit(attempt: int, who: Incarnation = A, supersedes: int | None = None) -> DecisionRecord:
    prepared = (PreparedTransaction("p", f"{who}{attempt}", 2),)
    return DecisionRecord(
        Epoch("q", 5), attempt, Decision.COMMIT, who, prepared, supersedes=supersedes
    )


def test_a_batch_behind_the_door_without_a_commit_is_a_defect() -> None:
    """It was redelivered when the fence was set, so its COMMIT must be there."""
    with raised(InvariantBroken, "Batch 4"):
        resolve.when_asked(4, Fence(5, 0), (abort(0),))


def test_two_commits_of_one_batch_are_a_defect() -> None:
    """Only salvage may record a second COMMIT, and it says which one it supersedes."""
    with raised(InvariantBroken, "attempts 0 and 1"):
        resolve.commit_in_force((commit(0), commit(1, B)))
    with raised(InvariantBroken, "attempts 1 and 2"):
        resolve.commit_in_force((commit(0), commit(1, B, 0), commit(2, B, 0)))


def test_a_superseding_record_keeps_what_was_not_replaced() -> None:
    """Epoch, offsets and the other transactions stay; the slot, the owner and the expired ones
    change.
    """
    kept, gone, new = (PreparedTransaction("p", i, 1) for i in ("kept", "gone", "new"))
    record = DecisionRecord(
        Epoch("q", 5), 3, Decision.COMMIT, A, (gone, kept), SourceOffsets(("1",), ("2",))
    )
    made = resolve.superseding(record, 4, B, [gone], [new])
    assert made == DecisionRecord(
        Epoch("q", 5),
        4,
        Decision.COMMIT,
        B,
        (kept, new),
        SourceOffsets(("1",), ("2",)),
        supersedes=3,
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "refused"),
    [
        ((), (), False),
        (("1",), (), False),
        (("1",), ("1",), False),
        (("1",), ("2",), True),
        ((None,), ("2",), True),
    ],
)
def test_other_source_offsets_are_refused(
    ours: tuple[str | None, ...], theirs: tuple[str | None, ...], refused: bool
) -> None:
    """A batch on record with other offsets is another batch; unknown offsets contradict nothing."""
    record = DecisionRecord(Epoch("q", 5), 0, Decision.COMMIT, A, offsets=SourceOffsets((), ours))
    if refused:
        with raised(CheckpointRefused, "OFFSETS_DIFFER"):
            resolve.refuse_other_offsets(record, SourceOffsets((), theirs))
    else:
        resolve.refuse_other_offsets(record, SourceOffsets((), theirs))
