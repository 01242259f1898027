"""A fault at the n-th of some calls of a module: of os, say, or of the client of an object store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

Call = Callable[[], Any]


def at_call(
    patch: pytest.MonkeyPatch,
    module: Any,
    names: Sequence[str],
    at: int,
    act: Callable[[str, Call], Any],
) -> Callable[[], bool]:
    """Let ``act`` take the place of the ``at``-th of these calls from now on, over all threads: it is
    given the name and the call. Returns whether it has come.
    """
    numbers, come = itertools.count(1), list[str]()

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if next(numbers) != at:
                return real(*args, **more)
            come.append(name)
            return act(name, lambda: real(*args, **more))

        return call

    for name in names:
        patch.setattr(module, name, counted(name, getattr(module, name)))
    return lambda: bool(come)


def after(act: Callable[[], object]) -> Callable[[str, Call], Any]:
    """The call, once something else has happened."""

    def both(_: str, call: Call) -> Any:
        act()
        return call()

    return both
