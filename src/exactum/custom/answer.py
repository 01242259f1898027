"""What a method of the user's answered, where the answer says nothing that is looked at.

Failure is said by raising. A client often says it by what it returns: False, a response with
status 500, a list of what failed; and a coroutine or a future says that nothing has happened yet.
Taken for a success, any of them would lose rows in silence.
"""

from __future__ import annotations

import inspect
from typing import Any

from exactum.errors import CodeFailed
from exactum.values.excerpt import cut

SHOWN_MAX = 100


def refuse_answer(answer: Any, method: str, then: str, *, may_answer: bool = False) -> None:
    """``method`` says what was called, ``then`` what stands and what to do. What ``may_answer`` is
    refused only where it has not run yet: a coroutine or the like.

    Raises:
        CodeFailed: the answer is not None.
    """
    has_not_run = inspect.isawaitable(answer) or inspect.isgenerator(answer)
    if answer is None or (may_answer and not has_not_run):
        return
    if inspect.iscoroutine(answer):
        answer.close()  # else Python warns as well, that nobody has awaited it
    why = (
        "so it has not run. Write it without async and without yield; within it, asyncio.run() "
        "waits for a coroutine."
        if has_not_run
        else "which is not taken for a success. Return nothing where all is well, and raise where "
        "it is not."
    )
    raise CodeFailed("SINK_ANSWER", f"{method} returned {shown(answer)}, {why} {then}")


def shown(answer: Any) -> str:
    return f"{cut(repr(answer), SHOWN_MAX)} ({type(answer).__name__})"
