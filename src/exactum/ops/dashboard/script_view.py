"""What ``exactum run`` does with its script, as the page shows it."""

from __future__ import annotations

from collections.abc import Sequence

from exactum.monitor.fact import Fact
from exactum.monitor.http_server import HttpHandler
from exactum.monitor.script_stats import ScriptStats
from exactum.ops.dashboard.picture import ScriptPicture, ScriptProcess
from exactum.ops.dashboard.routes import dashboard_routes
from exactum.ops.dashboard.script_source import ScriptSource
from exactum.ops.dashboard.timeline import moment_of
from exactum.ops.dashboard.wording import seconds
from exactum.ops.run.script_facts import ScriptFacts

SILENT_SHOWN_S = 3.0
"""A process says something twice a second."""


def script_routes(stats: ScriptStats, facts: ScriptFacts) -> dict[str, HttpHandler]:
    """The page of a supervised script."""
    return dashboard_routes(ScriptSource(stats, lambda: script_picture(stats, facts)))


def script_picture(stats: ScriptStats, facts: ScriptFacts) -> ScriptPicture:
    """What the supervisor does now. Called by threads of the server."""
    seen = facts.seen
    moments = [moment for fact in reversed(seen) if (moment := moment_of(fact)) is not None]
    return ScriptPicture(
        facts.script,
        stats.state,
        stats.restarts,
        facts.began_ms,
        tuple(_processes(facts, seen)),
        tuple(moments),
    )


def _processes(facts: ScriptFacts, seen: Sequence[Fact]) -> list[ScriptProcess]:
    view = facts.process()
    found = []
    since = {fact.fields["pid"]: fact.at_ms for fact in seen if fact.name == "ProcessStarted"}
    if view.pid is not None:
        role = "runs the queries" if view.has_begun else "starts, no query of it has begun"
        if view.silent_s is not None and view.silent_s > SILENT_SHOWN_S:
            role += f"; not heard of for {seconds(view.silent_s)}"
        found.append(ScriptProcess(view.pid, role, since.get(view.pid)))
    if view.standby_pid is not None:
        role = "stands by" if view.has_standby else "starts, to stand by"
        found.append(ScriptProcess(view.standby_pid, role, since.get(view.standby_pid)))
    return found
