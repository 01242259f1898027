"""The page of a supervised script: the numbers that its supervisor hears, and the histories beside
the checkpoints that it was told of.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from exactum.checkpoint.offset_log import local_folder
from exactum.monitor.fact import Fact
from exactum.monitor.http_server import HttpHandler
from exactum.monitor.query_stats import QueryStats
from exactum.monitor.script_stats import ScriptStats
from exactum.monitor.words import duration, now_ms
from exactum.ops.dashboard.checkpoint_source import FRESH_S, CheckpointWatch
from exactum.ops.dashboard.picture import QueryPicture, ScriptPicture, ScriptProcess, copy_of
from exactum.ops.dashboard.query_history import timeline_event
from exactum.ops.dashboard.routes import dashboard_routes
from exactum.ops.run.script_facts import ScriptFacts

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


# ---- the script --------------------------------------------------------------------------------


SILENT_SHOWN_S = 3.0
"""A process says something twice a second."""


def script_routes(stats: ScriptStats, facts: ScriptFacts) -> dict[str, HttpHandler]:
    """The page of a supervised script."""
    return dashboard_routes(ScriptSource(stats, lambda: script_picture(stats, facts)))


def script_picture(stats: ScriptStats, facts: ScriptFacts) -> ScriptPicture:
    """What the supervisor does now. Called by threads of the server."""
    seen = facts.seen
    events = [event for fact in reversed(seen) if (event := timeline_event(fact)) is not None]
    return ScriptPicture(
        facts.script,
        stats.state,
        stats.restarts,
        facts.began_ms,
        tuple(_processes(facts, seen)),
        tuple(events),
    )


def _processes(facts: ScriptFacts, seen: Sequence[Fact]) -> list[ScriptProcess]:
    view = facts.process()
    found = []
    since = {fact.fields["pid"]: fact.at_ms for fact in seen if fact.name == "ProcessStarted"}
    if view.pid is not None:
        role = "runs the queries" if view.has_begun else "starts, no query of it has begun"
        if view.silent_s is not None and view.silent_s > SILENT_SHOWN_S:
            role += f"; not heard of for {duration(view.silent_s)}"
        found.append(ScriptProcess(view.pid, role, since.get(view.pid)))
    if view.standby_pid is not None:
        role = "stands by" if view.has_standby else "starts, to stand by"
        found.append(ScriptProcess(view.standby_pid, role, since.get(view.standby_pid)))
    return found
