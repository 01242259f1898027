"""Takes the next Arrow batch while the last one is being sent. Overlap is where the speed is.

Without it a task reads from the JVM, sends and flushes in lockstep, and a third of the CPU stays
idle.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

DEPTH_MAX = 4
"""Batches held ahead; each costs the memory of one Arrow batch."""
END_TIMEOUT_S = 5.0
"""How long ``close`` waits for a read that is under way; the thread is a daemon and dies with
the worker.
"""


class _End:
    """Says that the source is exhausted, or with which error it stopped."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class Prefetch(Generic[T]):
    """An iterator over ``source`` whose items are taken ahead by a thread of its own.

    The error that ``source`` raises is raised by ``next`` in its place. ``close`` ends the thread;
    it is idempotent, and the context manager calls it.
    """

    def __init__(self, source: Iterator[T], depth_max: int = DEPTH_MAX) -> None:
        self._source = source
        self._queue: queue.Queue[T | _End] = queue.Queue(depth_max)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="exactum-prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        item = self._queue.get()
        if not isinstance(item, _End):
            return item
        self._queue.put(item)  # asked again, the answer is the same
        if item.error is not None:
            raise item.error
        raise StopIteration

    def __enter__(self) -> Prefetch[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread; what it holds is dropped. Idempotent."""
        self._closed.set()
        while self._thread.is_alive():
            try:  # the thread may be waiting for room
                self._queue.get(timeout=0.05)
            except queue.Empty:
                self._thread.join(END_TIMEOUT_S)
                return

    def _fill(self) -> None:
        end = _End(None)
        try:
            for item in self._source:
                self._queue.put(item)
                if self._closed.is_set():
                    return
        except BaseException as error:  # noqa: BLE001  (carried over to the one who asks for the next item)
            end = _End(error)
        self._queue.put(end)
