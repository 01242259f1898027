"""The states of several queries: of those that a process hears of, or of checkpoints on disk. Safe
to use from threads. Nothing is read while nobody asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from exactum.checkpoint.offset_log import local_folder
from exactum.checkpoint.query_place import place_of
from exactum.monitor import words
from exactum.monitor.job import JobState, read_job
from exactum.monitor.job_history import JobHistory
from exactum.monitor.script_stats import QUERIES_MAX, ScriptStats
from exactum.storage.folder import Folder

FRESH_S = 0.9
"""Within this time checkpoints are not read again, however many browsers ask."""


class JobSource(Protocol):
    """Where the metrics, the probes and the page have their states from."""

    def jobs(self) -> dict[str, JobState]:
        """Every query that is known, by a name for addresses, in a steady order. Never raises."""


class CheckpointJobs:
    """Of some checkpoints. Queries are named by their ids; by a number where none has begun, or
    where a checkpoint was copied.
    """

    def __init__(self, places: Sequence[str | Path], decision_log: str | None = None) -> None:
        """``places``: as the queries are given them as checkpointLocation."""
        self._histories = {str(place): JobHistory(place_of(place)) for place in places}
        self._decision_log = decision_log
        self._lock = threading.Lock()
        self._read_s = float("-inf")
        self._jobs: dict[str, JobState] = {}

    def jobs(self) -> dict[str, JobState]:
        """See ``JobSource``."""
        with self._lock:
            if time.monotonic() - self._read_s >= FRESH_S:
                self._jobs = {}
                for number, (place, history) in enumerate(self._histories.items(), 1):
                    job = read_job(place, self._decision_log, history=history)
                    query_id = job.stats.query_id
                    taken = not query_id or query_id in self._jobs
                    self._jobs[f"checkpoint-{number}" if taken else query_id] = job
                self._read_s = time.monotonic()
            return self._jobs


class ScriptJobs:
    """Of the queries that ``stats`` hears of, by their ids.

    ``with_history``: their histories are followed, too, for a page and for what an operator did.
    """

    def __init__(self, stats: ScriptStats, *, with_history: bool) -> None:
        self._stats = stats
        self._with_history = with_history
        self._histories: dict[Path, JobHistory] = {}
        self._lock = threading.Lock()

    def jobs(self) -> dict[str, JobState]:
        """See ``JobSource``."""
        with self._lock:
            return {each: self._job(each) for each in self._stats.known()}

    def _job(self, query_id: str) -> JobState:
        stats = self._stats.copy_of(query_id)
        folder = None if stats.checkpoint is None else local_folder(stats.checkpoint)
        if folder is None:
            problem = (
                f"The checkpoint is {stats.checkpoint or 'not known yet'}, in no folder: what is "
                "shown was heard since this process began. The past is shown by exactum dashboard "
                "--checkpoint."
            )
            return JobState(words.now_ms(), stats, stats.checkpoint or "", problems=(problem,))
        history = self._history(folder) if self._with_history else None
        return read_job(folder, history=history, facts=lambda: self._stats.copy_of(query_id))

    def _history(self, folder: Path) -> JobHistory:
        while folder not in self._histories and len(self._histories) >= QUERIES_MAX:
            del self._histories[next(iter(self._histories))]
        return self._histories.setdefault(folder, JobHistory(Folder(folder)))
