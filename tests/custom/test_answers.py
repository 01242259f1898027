"""What the methods of a ``TwoPhaseCommitSink`` return where they must return nothing: never taken
for a success.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from exactum.errors import CodeFailed
from exactum.protocol.model import CommitPermit
from exactum.protocol.sink import Guarantee, Rejection
from tests.kit.custom.custom_rows import batches
from tests.kit.custom.diary import Diary
from tests.kit.errors import raised
from tests.kit.opened_sink import OpenedSink

pytestmark = pytest.mark.slow


async def later() -> None:
    """A coroutine that nobody runs."""


def opened(guarantee: Guarantee = Guarantee.EXACTLY_ONCE, **answers: Any) -> OpenedSink:
    return OpenedSink(Diary("uploads", **answers), guarantee=guarantee)


def prepare(one: OpenedSink) -> CommitPermit:
    return one.permit(one.prepare(batches(1)[0]))


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
    one = opened(commit=answer)
    permit = prepare(one)
    identity = permit.record.prepared[0].identity
    with raised(CodeFailed, "SINK_ANSWER", "'uploads'", "commit()", text, identity):
        one.commit(permit)
    assert opened().commit(permit).committed == permit.record.prepared


@pytest.mark.parametrize("method", ["verify", "recover_and_commit", "abort", "recover_and_abort"])
def test_other_methods_that_answer_are_not_taken_for_a_success(method: str) -> None:
    """A verify that returns False has found something; an abort that returns it has undone
    nothing.
    """
    sink = Diary(**{method: lambda: False})
    one, other = OpenedSink(sink), OpenedSink(sink)
    permit = prepare(one)
    calls: dict[str, Callable[[], object]] = {
        "verify": lambda: one.participant.verify(permit.record.prepared),
        "recover_and_commit": lambda: other.commit(permit),
        "abort": one.sweep,
        "recover_and_abort": other.sweep,
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
        # Not an empty listing; names as bytes would match nothing, and what is open would stay open.
        ("list_transactions", lambda: None, "None (NoneType)"),
        ("list_transactions", lambda: ["exactum.a.name"], "'exactum.a.name' (str)"),
        (
            "list_transactions",
            lambda: [(b"exactum.a.name", "a")],
            "(b'exactum.a.name', 'a') (tuple)",
        ),
    ],
)
def test_an_answer_of_another_kind_stops_before_the_decision(
    method: str, answer: Callable[[], Any], text: str
) -> None:
    """What commit would be given, or what nobody wrote, is seen while nothing is decided. No new
    start mends it.
    """
    one = opened(**{method: answer})
    with raised(CodeFailed, "SINK_ANSWER", f"{method}()", text):
        one.participant.list_open()
        prepare(one)


def test_under_weaker_guarantees_as_well() -> None:
    """There the task commits."""
    with raised(CodeFailed, "SINK_ANSWER", "commit()", "False"):
        prepare(opened(Guarantee.AT_LEAST_ONCE, commit=lambda: False))


def test_rows_are_rejected_with_a_reason_each() -> None:
    """Rows without a reason would go nowhere; one text is not a tuple of one."""
    rows = batches(1)[0]
    with pytest.raises(ValueError, match="3 rows and 0 reasons"):
        Rejection(rows, ())
    with pytest.raises(TypeError, match="one text"):
        Rejection(rows, "too long")  # type: ignore[arg-type]
