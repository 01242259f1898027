"""From facts to what must be done, case by case."""

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
    Sighting,
    SourceOffsets,
)
from exactum.protocol.resolve import Close, Fence, FencedBy, Redeliver, RunAttempt, Stands
from tests.kit.errors import raised

A, B = Incarnation("a"), Incarnation("b")


def abort(attempt: int, who: Incarnation = A) -> DecisionRecord:
    return DecisionRecord(Epoch("q", 5), attempt, Decision.ABORT, who)


def commit(attempt: int, who: Incarnation = A, supersedes: int | None = None) -> DecisionRecord:
    prepared = (PreparedTransaction("p", f"{who}{attempt}", 2),)
    return DecisionRecord(
        Epoch("q", 5), attempt, Decision.COMMIT, who, prepared, supersedes=supersedes
    )


@pytest.mark.parametrize(
    ("records", "step"),
    [
        ((), Close(0)),
        ((abort(0),), Close(1)),
        ((abort(0), abort(1, B)), Close(2)),
        ((commit(0),), Redeliver(commit(0))),
        ((abort(0), commit(1)), Redeliver(commit(1))),
        ((commit(0), commit(1, B, 0)), Redeliver(commit(1, B, 0))),
    ],
)
def test_a_start_redelivers_a_commit_or_closes_the_next_slot(
    records: tuple[DecisionRecord, ...], step: Redeliver | Close
) -> None:
    """The COMMIT in force, salvaged or not; without one the first free slot."""
    assert resolve.at_start(records) == step


@pytest.mark.parametrize(
    ("batch_id", "records", "step"),
    [
        (5, (abort(0),), RunAttempt(1)),
        (5, (abort(0), abort(1, B)), FencedBy(abort(1, B))),
        (5, (abort(0), commit(1, B)), FencedBy(commit(1, B))),
        (6, (), RunAttempt(0)),
        (6, (abort(0, B),), FencedBy(abort(0, B))),
        (4, (commit(0, B),), Stands(commit(0, B))),
        (4, (commit(0, B), commit(1, B, 0)), Stands(commit(1, B, 0))),
    ],
)
def test_a_running_incarnation_owns_one_slot(
    batch_id: int, records: tuple[DecisionRecord, ...], step: Stands | RunAttempt | FencedBy
) -> None:
    """Behind the fence all stands; at the fence and beyond, a record in its slot fences it."""
    assert resolve.when_asked(batch_id, Fence(5, 0), records) == step


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


def test_leftovers_are_what_no_commit_names() -> None:
    """An ABORT names nothing; order is kept."""
    seen = (Sighting("p", "a1", A), Sighting("p", "x", B), Sighting("p", "b2", B))
    assert resolve.leftovers(seen, (abort(0), commit(1), commit(2, B, 1))) == (seen[1],)
    assert resolve.leftovers(seen, ()) == seen


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


def test_a_participant_must_answer_for_each_transaction() -> None:
    """Silence about a transaction is never read as success; order does not matter here."""
    one, two = PreparedTransaction("p", "1", 1), PreparedTransaction("p", "2", 1)
    resolve.require_same("p", "reported", [one, two], [two, one])
    for answer in ([one], [one, one], [one, two, two], []):
        with raised(InvariantBroken, "reported"):
            resolve.require_same("p", "reported", [one, two], answer)
