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


def refuse_answer(answer: Any, method: str, then: str) -> None:
    """``method`` says what was called, ``then`` what stands and what to do.

    Raises:
        CodeFailed: the answer is not None.
    """
    if answer is None:
        return
    refuse_unfinished(answer, method, then)
    raise CodeFailed(
        "SINK_ANSWER",
        f"{method} returned {shown(answer)}, which is not taken for a success. Return nothing "
        "where all is well, and raise where it is not: a status, a boolean or a future that is "
        f"returned is not looked at. {then}",
    )


def refuse_unfinished(answer: Any, method: str, then: str) -> None:
    """
    Raises:
        CodeFailed: the answer is a coroutine or the like: the method has not run yet.
    """
    if not inspect.isawaitable(answer) and not inspect.isgenerator(answer):
        return
    if inspect.iscoroutine(answer):
        answer.close()  # else Python warns as well, that nobody has awaited it
    raise CodeFailed(
        "SINK_ANSWER",
        f"{method} returned {shown(answer)}, so it has not run. Write it without async and without "
        f"yield; within it, asyncio.run() waits for a coroutine. {then}",
    )


def shown(answer: Any) -> str:
    return f"{cut(repr(answer), SHOWN_MAX)} ({type(answer).__name__})"
