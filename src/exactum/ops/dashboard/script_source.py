"""The page of a supervised script: the numbers that its supervisor hears, and the histories beside
the checkpoints that it was told of.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from exactum.checkpoint.offset_log import local_folder
from exactum.monitor.query_stats import QueryStats
from exactum.monitor.script_stats import ScriptStats
from exactum.monitor.words import now_ms
from exactum.ops.dashboard.checkpoint_source import FRESH_S
from exactum.ops.dashboard.checkpoint_watch import CheckpointWatch
from exactum.ops.dashboard.picture import QueryPicture, ScriptPicture, copy_of

WATCHES_MAX = 200


class ScriptSource:
    """A ``PageSource``. ``script`` says what the supervisor does; called by several threads."""

    def __init__(self, stats: ScriptStats, script: Callable[[], ScriptPicture | None]) -> None:
        self._stats = stats
        self._script = script
        self._watches: dict[str, CheckpointWatch] = {}
        self._read_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def pictures(self) -> list[QueryPicture]:
        """See ``PageSource``."""
        live = self._stats.read(lambda queries: [copy_of(query) for query in queries.values()])
        with self._lock:
            return [self._look(stats) for stats in live]

    def plots(self, key: str) -> Mapping[str, Any]:
        """See ``PageSource``."""
        with self._lock:
            watch = self._watches.get(key)
            return {} if watch is None else watch.plots(now_ms())

    def script(self) -> ScriptPicture | None:
        """See ``PageSource``."""
        return self._script()

    def _look(self, stats: QueryStats) -> QueryPicture:
        key, at_ms = stats.query_id, now_ms()
        watch = self._watch(key, stats.checkpoint)
        if watch is None:
            where = stats.checkpoint or "not told yet"
            trouble = (
                f"The checkpoint is {where}: on no local or shared file system, so that there is "
                "no history beside it. Plots and past micro-batches are missing."
            )
            return QueryPicture(
                key, stats, at_ms, folder=stats.checkpoint or "", troubles=(trouble,)
            )
        if time.monotonic() - self._read_s.get(key, float("-inf")) >= FRESH_S:
            watch.refresh(at_ms)
            self._read_s[key] = time.monotonic()
        # What the supervisor hears is fresher than what the checkpoint says.
        return replace(watch.picture(key, at_ms), stats=stats, judgement=None)

    def _watch(self, key: str, checkpoint: str | None) -> CheckpointWatch | None:
        folder = None if checkpoint is None else local_folder(checkpoint)
        watch = self._watches.get(key)
        if folder is None or (watch is not None and watch.folder == folder):
            return watch if folder is not None else None
        while len(self._watches) >= WATCHES_MAX:
            self._watches.pop(next(iter(self._watches)))
        self._watches[key] = CheckpointWatch(folder)
        self._read_s.pop(key, None)
        return self._watches[key]
