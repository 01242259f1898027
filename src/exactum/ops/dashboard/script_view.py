"""What ``exactum run`` does with its script, as the page shows it."""

from __future__ import annotations

from collections.abc import Sequence

from exactum.monitor.fact import Fact
from exactum.monitor.http_server import HttpHandler
from exactum.monitor.script_stats import ScriptStats
from exactum.monitor.words import duration
from exactum.ops.dashboard.picture import ScriptPicture, ScriptProcess
from exactum.ops.dashboard.query_history import timeline_event
from exactum.ops.dashboard.routes import dashboard_routes
from exactum.ops.dashboard.script_source import ScriptSource
from exactum.ops.run.script_facts import ScriptFacts

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
