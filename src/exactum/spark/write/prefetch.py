"""Takes the next Arrow batch while the last one is being sent. Overlap is where the speed is.

Without it a task reads from the JVM, sends and flushes in lockstep, and a third of the CPU stays
idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

DEPTH_MAX = 4
"""Batches held ahead; each costs the memory of one Arrow batch."""
END_TIMEOUT_S = 5.0
"""How long the end waits for a read that is under way."""


@contextmanager
def prefetched(source: Iterator[T], depth_max: int = DEPTH_MAX) -> Iterator[Iterator[T]]:
    """An iterator over ``source`` whose items are taken ahead by a thread of its own, which ends
    with the context; what it holds is dropped. An error of ``source`` is raised in its place.
    """
    end: Any = object()
    pool = ThreadPoolExecutor(1, "exactum-prefetch")
    waiting = deque(pool.submit(next, source, end) for _ in range(depth_max))

    def items() -> Iterator[T]:
        while (item := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(next, source, end))
            yield item

    try:
        yield items()
    finally:
        for one in waiting:
            one.cancel()
        under_way = [one for one in waiting if not one.cancelled()]
        stuck = wait(under_way, END_TIMEOUT_S).not_done
        pool.shutdown(wait=not stuck)
