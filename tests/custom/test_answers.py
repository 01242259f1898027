"""What the methods of a ``TwoPhaseCommitSink`` return where they must return nothing: never taken
for a success.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from exactum.custom.transaction_name import TransactionName, TransactionScope
from exactum.custom.two_phase import TwoPhaseCommitSink
from exactum.errors import CodeFailed
from exactum.protocol.model import (
    CommitPermit,
    Decision,
    DecisionRecord,
    Epoch,
    PreparedTransaction,
    new_incarnation,
)
from exactum.protocol.sink import Guarantee, OpenSink, QueryRun, Rejection, WriteOrder
from exactum.testing import TaskJob
from exactum.testing.memory import permit_of
from tests.kit.custom.custom_rows import batches
from tests.kit.errors import raised

pytestmark = pytest.mark.slow

QUERY = "5f1c9a3e-9f10-4c5e-8d5a-1f1de6c0b7aa"


class Answering(TwoPhaseCommitSink[str]):
    """Writes nowhere, keeps the names that it was given; ``answers`` are what its methods return
    instead.
    """

    def __init__(self, **answers: Callable[[], Any]) -> None:
        super().__init__(name="uploads")
        self.answers = answers
        self.names: list[str] = []

    def begin_transaction(self, name: TransactionName) -> str:
        self.names.append(str(name))
        return self._answer("begin_transaction", str(name))  # type: ignore[no-any-return]

    def invoke(self, transaction: str, batch: Any) -> Any:
        return self._answer("invoke")

    def pre_commit(self, transaction: str) -> Any:
        return self._answer("pre_commit")

    def commit(self, transaction: str) -> Any:
        return self._answer("commit")

    def abort(self, transaction: str) -> Any:
        return self._answer("abort")

    def recover_and_commit(self, transaction: str) -> Any:
        return self._answer("recover_and_commit")

    def recover_and_abort(self, transaction: str) -> Any:
        return self._answer("recover_and_abort")

    def verify(self, transaction: str) -> Any:
        return self._answer("verify")

    def list_transactions(self, scope: TransactionScope) -> Any:
        return self._answer("list_transactions", [(name, name) for name in self.names])

    def _answer(self, method: str, otherwise: Any = None) -> Any:
        return self.answers.get(method, lambda: otherwise)()


async def later() -> None:
    """A coroutine that nobody runs."""


def run_of(guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> QueryRun:
    return QueryRun(QUERY, new_incarnation(), guarantee)


def prepare(opened: OpenSink, run: QueryRun) -> Sequence[PreparedTransaction]:
    return TaskJob(opened.writers, [[batches(1)[0]]])(WriteOrder(run, 5, 0, 1))


def permit(run: QueryRun, prepared: Sequence[PreparedTransaction]) -> CommitPermit:
    return permit_of(
        DecisionRecord(Epoch(QUERY, 5), 0, Decision.COMMIT, run.incarnation, tuple(prepared))
    )


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(lambda: False, "False (bool)", id="false"),
        pytest.param(lambda: {"Failed": ["row 3"]}, "row 3", id="a dictionary"),
        pytest.param(later, "(coroutine)", id="async def"),
        pytest.param(lambda: (yield), "(generator)", id="yield"),
    ],
)
def test_a_commit_that_answers_is_not_taken_for_a_success(
    answer: Callable[[], Any], text: str
) -> None:
    """Failure that is returned, or a coroutine: the epoch stays decided, and a class that is
    corrected commits it.
    """
    run = run_of()
    opened = Answering(commit=answer).open(run, "uploads")
    prepared = prepare(opened, run)
    with raised(CodeFailed, "SINK_ANSWER", text) as caught:
        opened.participant.commit(permit(run, prepared), prepared)
    for part in (prepared[0].identity, "'uploads'", "commit()"):
        assert part in str(caught.value)
    corrected = Answering().open(run_of(), "uploads").participant
    assert corrected.commit(permit(run, prepared), prepared).committed == tuple(prepared)


@pytest.mark.parametrize("method", ["verify", "recover_and_commit", "abort", "recover_and_abort"])
def test_other_methods_that_answer_are_not_taken_for_a_success(method: str) -> None:
    """A verify that returns False has found something; an abort that returns it has undone
    nothing.
    """
    run, sink = run_of(), Answering(**{method: lambda: False})
    opened, other = sink.open(run, "uploads"), sink.open(run_of(), "uploads").participant
    prepared = prepare(opened, run)
    calls: dict[str, Callable[[], object]] = {
        "verify": lambda: opened.participant.verify(prepared),
        "recover_and_commit": lambda: other.commit(permit(run, prepared), prepared),
        "abort": lambda: opened.participant.abort(opened.participant.list_open()),
        "recover_and_abort": lambda: other.abort(other.list_open()),
    }
    with raised(CodeFailed, "SINK_ANSWER", f"{method}()", "False (bool)"):
        calls[method]()


@pytest.mark.parametrize(
    ("method", "answer", "text"),
    [
        ("begin_transaction", later, "(coroutine)"),
        ("invoke", lambda: True, "True (bool)"),
        ("invoke", lambda: 3, "3 (int)"),
        ("invoke", later, "(coroutine)"),
        ("pre_commit", lambda: True, "'exactum."),
        ("pre_commit", later, "(coroutine)"),
    ],
)
def test_in_a_task_an_answer_of_another_kind_stops_before_the_decision(
    method: str, answer: Callable[[], Any], text: str
) -> None:
    """What commit would be given, or what nobody wrote, is seen while nothing is decided."""
    run = run_of()
    with raised(CodeFailed, "SINK_ANSWER", f"{method}()", text):
        prepare(Answering(**{method: answer}).open(run, "uploads"), run)


@pytest.mark.parametrize(
    ("listing", "text"),
    [
        (lambda: None, "None (NoneType)"),
        (lambda: ["exactum.a.name"], "'exactum.a.name' (str)"),
        (lambda: [(b"exactum.a.name", "a")], "(b'exactum.a.name', 'a') (tuple)"),
    ],
)
def test_a_listing_that_is_none_is_not_taken_for_an_empty_one(
    listing: Callable[[], Any], text: str
) -> None:
    """Names as bytes would match nothing, and what is open would stay open. No new start mends
    it.
    """
    opened = Answering(list_transactions=listing).open(run_of(), "uploads")
    with raised(CodeFailed, "SINK_ANSWER", "list_transactions()", text):
        opened.participant.list_open()


def test_under_weaker_guarantees_as_well() -> None:
    """There the task commits."""
    run = run_of(Guarantee.AT_LEAST_ONCE)
    with raised(CodeFailed, "SINK_ANSWER", "commit()", "False"):
        prepare(Answering(commit=lambda: False).open(run, "uploads"), run)


def test_rows_are_rejected_with_a_reason_each() -> None:
    """Rows without a reason would go nowhere; one text is not a tuple of one."""
    rows = batches(1)[0]
    with pytest.raises(ValueError, match="3 rows and 0 reasons"):
        Rejection(rows, ())
    with pytest.raises(TypeError, match="one text"):
        Rejection(rows, "too long")  # type: ignore[arg-type]
