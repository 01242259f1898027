"""The page of some checkpoints, read from disk alone: it outlives every driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exactum.monitor.words import now_ms
from exactum.ops.dashboard.checkpoint_watch import CheckpointWatch
from exactum.ops.dashboard.picture import QueryPicture, ScriptPicture

FRESH_S = 0.9
"""Within this time nothing is read again, however many browsers ask."""


class CheckpointSource:
    """A ``PageSource``. Nothing is read while nobody looks."""

    def __init__(self, folders: Sequence[Path], decision_log: str | None = None) -> None:
        self._watches = [CheckpointWatch(folder, decision_log) for folder in folders]
        self._lock = threading.Lock()
        self._read_s = float("-inf")

    def pictures(self) -> list[QueryPicture]:
        """See ``PageSource``."""
        with self._lock:
            self._refresh()
            at_ms = now_ms()
            return [watch.picture(key, at_ms) for key, watch in self._keyed().items()]

    def plots(self, key: str) -> Mapping[str, Any]:
        """See ``PageSource``."""
        with self._lock:
            self._refresh()
            watch = self._keyed().get(key)
            return {} if watch is None else watch.plots(now_ms())

    def script(self) -> ScriptPicture | None:
        """See ``PageSource``."""
        return None

    def _refresh(self) -> None:
        if time.monotonic() - self._read_s >= FRESH_S:
            for watch in self._watches:
                watch.refresh(now_ms())
            self._read_s = time.monotonic()

    def _keyed(self) -> dict[str, CheckpointWatch]:
        """By query id; a number where none has begun, or where a checkpoint was copied."""
        keyed: dict[str, CheckpointWatch] = {}
        for number, watch in enumerate(self._watches, 1):
            query_id = watch.query_id
            taken = query_id is None or query_id in keyed
            keyed[f"checkpoint-{number}" if taken else str(query_id)] = watch
        return keyed
