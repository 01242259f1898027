"""How the coordinator calls several participants: one after another, or all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
Parallel = Callable[[Callable[[T], R], Sequence[T]], list[R]]
"""Calls a function with each of some values, at once or in turn, and returns when all calls have
ended.
"""


def one_after_another(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    return [function(item) for item in items]


def all_at_once(threads: Executor | None) -> Callable[[Callable[[T], R], Sequence[T]], list[R]]:
    """In ``threads``; without any, or for one value, in the caller's."""

    def run(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if threads is None or len(items) <= 1:
            return one_after_another(function, items)
        futures = [threads.submit(function, item) for item in items]
        wait(futures)  # also where one has failed: nobody may use what another still uses
        return [future.result() for future in futures]

    return run
