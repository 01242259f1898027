"""The queries of exactum in this process: the one table of them."""

from __future__ import annotations

import threading
from typing import Protocol


class Stoppable(Protocol):
    """What lets no micro-batch of a run begin while it is shut; see ``run.epoch_gate``."""

    def between_epochs(self, log_timeout_s: float) -> bool: ...


class OpenQueries:
    """By Spark's run id the runs that are under way. Safe to use from threads."""

    def __init__(self) -> None:
        self.starting = threading.Lock()
        """Held while Spark starts a query: its settings are those of the session meanwhile."""
        self._lock = threading.Lock()
        self._gates: dict[str, Stoppable | None] = {}

    def enter(self, run_id: str) -> bool:
        """The run is about to be opened. False: it is there already."""
        with self._lock:
            is_new = run_id not in self._gates
            self._gates.setdefault(run_id, None)
            return is_new

    def opened(self, run_id: str, gate: Stoppable) -> None:
        with self._lock:
            self._gates[run_id] = gate

    def leave(self, run_id: str) -> None:
        """Idempotent."""
        with self._lock:
            self._gates.pop(run_id, None)

    def gate_of(self, run_id: str) -> Stoppable | None:
        """None where the run is not open, or not exactum's."""
        with self._lock:
            return self._gates.get(run_id)


open_queries = OpenQueries()
"""Of this process: the supervisor asks the whole script to stop, and two functions of exactum in
one query meet nowhere else.
"""
