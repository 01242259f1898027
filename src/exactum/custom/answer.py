"""What a method of the user's answered, where the answer says nothing that is looked at.

Failure is said by raising. A client often says it by what it returns: False, a response with
status 500, a list of what failed; and a coroutine or a future says that nothing has happened yet.
Taken for a success, any of them would lose rows in silence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import NoneType
from typing import Any

from exactum.errors import CodeFailed
from exactum.values.excerpt import cut

SHOWN_MAX = 100


def called(
    method: Callable[..., Any], *given: Any, what: str, then: str, answers: type = NoneType
) -> Any:
    """What ``method`` answers to what is ``given``. ``what`` says for people what is called,
    ``then`` what stands if the answer is refused, and what to do. ``answers``: what it may answer
    beside None; what has not run yet, a coroutine or the like, is none of that.

    Raises:
        CodeFailed: the answer is another one.
        Exception: as ``method`` raises it.
    """
    answer = method(*given)
    has_not_run = inspect.isawaitable(answer) or inspect.isgenerator(answer)
    if answer is None or (isinstance(answer, answers) and not has_not_run):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()  # else Python warns as well, that nobody has awaited it
    why = (
        "so it has not run. Write it without async and without yield; within it, asyncio.run() "
        "waits for a coroutine."
        if has_not_run
        else "which is not taken for a success. Return nothing where all is well, and raise where "
        "it is not."
    )
    raise CodeFailed("SINK_ANSWER", f"{what} returned {shown(answer)}, {why} {then}")


def shown(answer: Any) -> str:
    return f"{cut(repr(answer), SHOWN_MAX)} ({type(answer).__name__})"
