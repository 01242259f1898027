"""From where a transaction stands, what is on record and whose it is, to what to do."""

from __future__ import annotations

import pytest

from exactum.ops.transactions.state import OnRecord, Owner, Runs, advice_of, on_record
from exactum.protocol.inspection import TransactionState, TransactionView
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    Epoch,
    Incarnation,
    PreparedTransaction,
)

A, B = Incarnation("a" * 16), Incarnation("b" * 16)
STATE, SAYS, WHOSE = TransactionState, OnRecord, Owner


def view(identity: str = "t", **known: object) -> TransactionView:
    return TransactionView("out", identity, "q", A, STATE.OPEN, **known)  # type: ignore[arg-type]


def record(
    batch_id: int, attempt: int, *names: str, supersedes: int | None = None
) -> DecisionRecord:
    return DecisionRecord(
        Epoch("q", batch_id),
        attempt,
        Decision.COMMIT if names else Decision.ABORT,
        A,
        tuple(PreparedTransaction("out", name, 1) for name in names),
        supersedes=supersedes,
    )


def test_what_is_on_record() -> None:
    """The COMMIT in force counts; one that salvage replaced names what must never be visible; a
    transaction of the same name in another sink is another one.
    """
    records = [record(1, 0), record(1, 1, "t"), record(1, 2, "u", supersedes=1), record(2, 0)]
    assert on_record(view("u"), records)[0] is SAYS.COMMIT
    assert on_record(view("t"), records)[0] is SAYS.SUPERSEDED
    assert on_record(view("v"), records) == (SAYS.NOTHING, None)
    assert on_record(view("v", batch_id=2, attempt=0), records)[0] is SAYS.ABORT
    assert on_record(view("v", batch_id=1, attempt=1), records)[0] is SAYS.WITHOUT_IT
    elsewhere = TransactionView("other", "u", "q", A, STATE.OPEN)
    assert on_record(elsewhere, records)[0] is SAYS.NOTHING
    runs = Runs(frozenset({A}), frozenset({B}))
    assert (runs.owner(A), runs.owner(B)) == (WHOSE.LIVING_RUN, WHOSE.DEAD_RUN)
    assert runs.owner(Incarnation("c" * 16)) is WHOSE.FORMER_INCARNATION


@pytest.mark.parametrize(
    ("state", "says", "owner", "lives", "needs_person", "do"),
    [
        (STATE.OPEN, SAYS.COMMIT, WHOSE.DEAD_RUN, False, True, "transactions finish"),
        (STATE.PREPARED, SAYS.COMMIT, WHOSE.DEAD_RUN, False, True, "transactions finish"),
        (STATE.PREPARED, SAYS.COMMIT, WHOSE.DEAD_RUN, True, False, "the living run commits"),
        (STATE.COMMITTED, SAYS.COMMIT, WHOSE.DEAD_RUN, False, False, "it is committed"),
        (STATE.ABORTED, SAYS.COMMIT, WHOSE.DEAD_RUN, False, True, "start the query"),
        (STATE.GONE, SAYS.COMMIT, WHOSE.DEAD_RUN, True, False, "makes it whole"),
        (STATE.UNKNOWN, SAYS.COMMIT, WHOSE.DEAD_RUN, False, True, "is not known"),
        (STATE.OPEN, SAYS.NOTHING, WHOSE.LIVING_RUN, True, False, "at work on it"),
        (STATE.OPEN, SAYS.WITHOUT_IT, WHOSE.LIVING_RUN, True, False, "at work on it"),
        (STATE.OPEN, SAYS.ABORT, WHOSE.DEAD_RUN, True, False, "with its next epoch"),
        (STATE.OPEN, SAYS.NOTHING, WHOSE.DEAD_RUN, False, True, "transactions abort"),
        (STATE.PREPARED, SAYS.SUPERSEDED, WHOSE.DEAD_RUN, False, True, "transactions abort"),
        (STATE.ABORTED, SAYS.NOTHING, WHOSE.DEAD_RUN, False, False, "it is settled"),
        (STATE.OPEN, SAYS.UNKNOWN, WHOSE.DEAD_RUN, False, False, "the decision log answers"),
    ],
)
def test_what_to_do(
    state: TransactionState,
    says: OnRecord,
    owner: Owner,
    lives: bool,
    needs_person: bool,
    do: str,
) -> None:
    """A decided transaction is never told to be aborted, an undecided one never to be finished."""
    said, needs = advice_of(state, says, owner, lives=lives)
    assert needs is needs_person and do in said
    assert ("finish" in said) <= (says is SAYS.COMMIT)
    assert ("abort'" in said) <= (says is not SAYS.COMMIT)


def test_times() -> None:
    """By the target's clock, which may be ahead of ours; what never times out has no time left."""
    shown = view(began_ms=1_000, timeout_ms=5_000)
    assert (shown.age_ms(3_000), shown.left_ms(3_000)) == (2_000, 3_000)
    assert (shown.age_ms(500), shown.left_ms(9_000)) == (0, -3_000)
    assert view(began_ms=1_000).left_ms(3_000) is None and view().age_ms(3_000) is None
