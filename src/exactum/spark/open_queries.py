"""The queries of exactum in this process: the one table of them."""

from __future__ import annotations

import threading
from typing import Protocol


class Stoppable(Protocol):
    """What lets no micro-batch of a run begin while it is shut; see ``run.epoch_gate``."""

    def between_epochs(self, log_timeout_s: float) -> bool: ...


class OpenQueries:
    """By Spark's run id the runs that are under way; by checkpoint the batch whose state was
    computed last and is not that of a decision: Spark keeps it loaded for longer than the run that
    computed it, and where it runs in the driver for longer than its session. Safe to use from
    threads.
    """

    def __init__(self) -> None:
        self.starting = threading.Lock()
        """Held while Spark starts a query: its settings are those of the session meanwhile."""
        self._lock = threading.Lock()
        self._gates: dict[str, Stoppable | None] = {}
        self._undecided: dict[str, int] = {}

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

    # ---- what was computed -------------------------------------------------------------------

    def computes(self, checkpoint: str, batch_id: int) -> None:
        """The state of this batch is about to be computed."""
        with self._lock:
            self._undecided[checkpoint] = batch_id

    def decided(self, checkpoint: str) -> None:
        """What was computed last is that of a decision."""
        with self._lock:
            self._undecided.pop(checkpoint, None)

    def undecided(self, checkpoint: str) -> int | None:
        """The batch that was computed last, and is not decided; None: none."""
        with self._lock:
            return self._undecided.get(checkpoint)


open_queries = OpenQueries()
"""Of this process: the supervisor asks the whole script to stop, and two functions of exactum in
one query meet nowhere else.
"""
