"""Checkpoints, read from disk again and again: their histories, and how their queries are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from exactum.checkpoint.layout import HISTORY
from exactum.checkpoint.query_place import QueryPlace
from exactum.errors import ExactumError
from exactum.monitor.checkpoint_verdict import CheckpointState, state_of
from exactum.monitor.words import now_ms
from exactum.ops.dashboard.history_tail import HistoryTail
from exactum.ops.dashboard.picture import SPARK_POINTS, QueryPicture, ScriptPicture, copy_of
from exactum.ops.dashboard.query_history import QueryHistory

T = TypeVar("T")


class CheckpointWatch:
    """Used by one thread at a time. It keeps what it has seen, also when the folder goes."""

    def __init__(self, folder: Path, decision_log: str | None = None) -> None:
        self.folder = folder
        self._decision_log = decision_log
        self._place: QueryPlace | None = None
        self._state: CheckpointState | None = None
        self._history = QueryHistory("")
        self._tail = HistoryTail(folder)
        self._troubles: list[str] = []

    @property
    def query_id(self) -> str | None:
        """None until a query has begun there."""
        return self._place.query_id if self._place is not None else None

    def refresh(self, now_ms: int) -> None:
        """Read what is new. Never raises: what could not be read is a trouble of the picture."""
        self._troubles = []
        place = self._read(lambda: QueryPlace.of(self.folder, self._decision_log))
        if place is None:
            return
        if self._place is None or self._place.query_id != place.query_id:
            self._history = QueryHistory(place.query_id)
            self._tail = HistoryTail(self.folder)
        self._place = place
        self._read(lambda: self._tail.added(self._history.observe, now_ms))
        self._state = state_of(place, now_ms, followed=self._history.stats)
        self._troubles += [each for each in self._state.troubles if each not in self._troubles]
        self._say_what_is_missing()

    def picture(self, key: str, now_ms: int) -> QueryPicture:
        """What was read last."""
        history, state = self._history, self._state
        stats = history.stats if state is None else state.stats
        return QueryPicture(
            key,
            copy_of(stats),
            now_ms,
            place=self._place,
            folder=str(self.folder),
            living=None if state is None else state.living,
            judgement=state.judged(now_ms) if state is not None and state.is_known else None,
            planned=None if state is None else state.planned,
            finished=None if state is None else state.finished,
            batches=tuple(history.batches),
            events=tuple(history.events),
            failures=tuple(history.failures),
            put_aside=tuple(history.put_aside),
            rates=tuple(history.series.recent_rates(now_ms, SPARK_POINTS)),
            began_ms=history.began_ms,
            troubles=tuple(self._troubles),
        )

    def plots(self, now_ms: int) -> Mapping[str, Any]:
        """See ``Series``."""
        return self._history.series.hour(now_ms)

    def _read(self, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (OSError, ExactumError) as error:
            said = str(error)
            if said not in self._troubles:
                self._troubles.append(said)
            return None

    def _say_what_is_missing(self) -> None:
        if not (self.folder / HISTORY).is_dir():
            place = self.folder / HISTORY
            self._troubles.append(
                f"The history {place} is gone. What is shown of the past was read before."
                if self._history.began_ms is not None
                else f"There is no history at {place}: plots and past micro-batches are missing. "
                "An exactly-once query writes it, unless spark.exactum.history.enabled is false."
            )
        malformed = self._tail.unreadable + sum(self._history.malformed.values())
        if malformed:
            self._troubles.append(
                f"{malformed:,} lines of the history could not be read and are not shown "
                "(half a line after a crash, or a damaged disk)."
            )


# ---- a page of several -------------------------------------------------------------------------


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
