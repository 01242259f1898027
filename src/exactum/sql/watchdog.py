"""What only another thread can do for a thread that waits for a server: break its connection, or
tell somebody.

A server that is stopped keeps its connections and answers nothing. Neither ``statement_timeout``
nor libpq's ``tcp_user_timeout`` ends such a wait: the one is the server's own clock, and the other
is content with the acknowledgements of the server's operating system.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger("exactum.sql")


class Watchdog:
    """Calls what was to be called after a while, unless what it watches over has ended before.

    One daemon thread at most, which begins with the first wait and ends when it wakes up and
    nothing is left to watch; it holds no more than one entry for each thread that waits. Actions
    are called one at a time, so they must be short. A forked child begins with none.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[object, tuple[float, Callable[[], object]]] = {}
        self._wakes_s: float | None = None  # None: there is no thread

    @contextmanager
    def after(self, delay_s: float, action: Callable[[], object]) -> Iterator[None]:
        """Call ``action`` once, from the watchdog's thread, if the block still runs after
        ``delay_s``. It is never called, nor still running, when the block has ended.
        """
        entry = object()
        due_s = time.monotonic() + delay_s
        with self._changed:
            if self._wakes_s is None:
                threading.Thread(target=self._watch, name="exactum-watchdog", daemon=True).start()
                self._wakes_s = due_s
            elif due_s < self._wakes_s:
                self._changed.notify()
            self._due[entry] = (due_s, action)
        try:
            yield
        finally:
            with self._changed:
                self._due.pop(entry, None)

    def _watch(self) -> None:
        with self._changed:
            while self._due:
                self._wakes_s = min(due_s for due_s, _ in self._due.values())
                self._changed.wait(max(0.0, self._wakes_s - time.monotonic()))
                now_s = time.monotonic()
                for entry in [e for e, (due_s, _) in self._due.items() if due_s <= now_s]:
                    _, action = self._due.pop(entry)
                    try:
                        action()
                    except Exception:  # the others are watched on
                        log.exception("exactum's watchdog could not do what was due")
            self._wakes_s = None


watchdog = Watchdog()
"""This process's. It is held by nobody, for what it watches (a session, a step of the decision log)
belongs to many.
"""
os.register_at_fork(after_in_child=watchdog.__init__)  # type: ignore[misc]
